#!/bin/sh
# dpkg says "upgrade" or "remove", rpm how many versions stay, apk which version goes for good.
case "${1:-0}" in
    *upgrade | deconfigure | [1-9]) ;;
    *)
        if [ -d /run/systemd/system ]; then
            systemctl stop fullpipe.service 'fullpipe-measure@*.timer' 'fullpipe-measure@*.service' || true
            # All instances of the timer.
            systemctl --no-reload disable fullpipe.service fullpipe-measure@.timer || true
        fi
        ;;
esac
