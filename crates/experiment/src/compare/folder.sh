# Makes a folder, writes its name, and answers each request with a line. Removes the folder when no more requests come,
# which is also when the program that asks, or the connection to it, has ended in any way.
# $1: memory or disk.
umask 077
base=/var/tmp
if test "$1" = memory && test -w /dev/shm; then base=/dev/shm; fi
# A write to nobody ends the shell with PIPE. The folder's name is known, and who removes it is set, before it is there.
trap 'exit 0' HUP INT TERM PIPE
folder=$(mktemp -u "$base/fullpipe-compare.XXXXXXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder" || { trap - EXIT; exit 1; }
echo "$folder"
while read -r request argument; do
    case "$request" in
        make) head -c "$argument" /dev/urandom > "$folder/file" && echo done || echo failed ;;
        reset)
            rm -rf "$folder/copy"
            if test "$1" = disk && test -e "$folder/file"; then
                sync
                dd if="$folder/file" iflag=nocache count=0 2> /dev/null
            fi
            echo done
            ;;
        digest) sha256sum < "$folder/$argument" 2> /dev/null || echo none ;;
    esac
done
