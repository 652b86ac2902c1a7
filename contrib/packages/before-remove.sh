#!/bin/sh
# dpkg says "remove", rpm how many versions stay, apk nothing.
case "${1:-0}" in
    remove | 0)
        if [ -d /run/systemd/system ]; then
            systemctl stop fullpipe.service 'fullpipe-measure@*.timer' 'fullpipe-measure@*.service' || true
            # All instances of the timer.
            systemctl --no-reload disable fullpipe.service fullpipe-measure@.timer || true
        fi
        ;;
esac
