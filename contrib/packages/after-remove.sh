#!/bin/sh
# What was measured stays in /var/lib/fullpipe-measure, and the journal by which settings are undone in
# /var/lib/fullpipe.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
