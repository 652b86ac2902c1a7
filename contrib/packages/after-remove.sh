#!/bin/sh
# What was measured, and the journal by which settings are undone, stay in /var/lib/fullpipe.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
