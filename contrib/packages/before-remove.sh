#!/bin/sh
# dpkg says "remove", rpm how many versions stay, apk nothing.
case "${1:-0}" in
    remove | 0)
        if [ -d /run/systemd/system ]; then
            systemctl --no-reload disable --now fullpipe.service || true
        fi
        ;;
esac
