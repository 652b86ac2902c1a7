# Makes keys, configurations and the file for the programs, on a file system that ends with the lab.
# $1: bytes of the file; $2: folder for it and its copy, or nothing if they are in memory.
mount -t tmpfs -o mode=755,size=100% fullpipe /run
mkdir -p /run/sshd /run/compare/from /run/compare/to /run/compare/nginx /run/compare/empty /run/compare/home
cd /run/compare
if test -n "$2"; then
    mkdir -p "$2/from" "$2/to"
    mount --bind "$2/from" from
    mount --bind "$2/to" to
fi
head -c "$1" /dev/urandom > from/file

if command -v ssh-keygen > /dev/null; then
    ssh-keygen -q -t ed25519 -N '' -f host_key
    ssh-keygen -q -t ed25519 -N '' -f user_key
    cp user_key.pub authorized_keys
fi
(umask 077; head -c 32 /dev/urandom | base64 > share_key)
# A shell of a login may read files of its home, which takes time, and scp starts none: the home is empty.
cat > sshd.conf << 'END'
Port 2222
HostKey /run/compare/host_key
AuthorizedKeysFile /run/compare/authorized_keys
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
SetEnv HOME=/run/compare/home
Subsystem sftp internal-sftp
END
cat > ssh.conf << 'END'
Port 2222
User root
IdentityFile /run/compare/user_key
IdentitiesOnly yes
UserKnownHostsFile /dev/null
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking no
BatchMode yes
ConnectTimeout 20
LogLevel ERROR
END

cat > rsyncd.conf << 'END'
port = 8730
use chroot = no
uid = 0
gid = 0
[to]
path = /run/compare/to
read only = no
END

if command -v openssl > /dev/null; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=compare \
        -keyout tls.key -out tls.crt 2> /dev/null
fi
tls="listen 8443 ssl http2; ssl_certificate tls.crt; ssl_certificate_key tls.key;"
test -e tls.crt || tls=""
cat > nginx.conf << END
daemon off;
user root;
pid nginx/pid;
error_log stderr;
events {}
http {
    access_log off;
    sendfile on;
    client_body_temp_path nginx/a;
    proxy_temp_path nginx/b;
    fastcgi_temp_path nginx/c;
    uwsgi_temp_path nginx/d;
    scgi_temp_path nginx/e;
    server {
        listen 8080;
        $tls
        root /run/compare/from;
    }
}
END

cat > vsftpd.conf << 'END'
background=NO
listen=YES
listen_port=2121
run_as_launching_user=YES
anonymous_enable=YES
anon_root=/run/compare/from
no_anon_password=YES
secure_chroot_dir=/run/compare/empty
seccomp_sandbox=NO
END
