#!/bin/sh
# A server that runs goes on with the new program; none is started.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    systemctl try-restart fullpipe.service || true
fi
