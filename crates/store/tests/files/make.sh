#!/usr/bin/env bash
# Makes the files of iperf3 in this folder, by a real iperf3 over loopback; IPERF3 names one of version 3.17 or later,
# which has --json-stream, and IPERF3_12 one of version 3.12, without which its files stay as they are. The files of
# flent and pScheduler have the fields that these programs document.
set -euo pipefail
cd "$(dirname "$0")"
iperf3="${IPERF3:-iperf3}"
port=5297

# Runs one test; the rest of the arguments is for the client.
run() {
    local server=$1 client=$2
    shift 2
    "$iperf3" --server --one-off --port "$port" --json >"$server" &
    sleep 0.3
    "$iperf3" --client 127.0.0.1 --port "$port" --time 1 "$@" >"$client"
    wait
}

run /dev/null iperf3-tcp.json --json --bitrate 100M --parallel 2 --window 256K
run iperf3-server.json iperf3-reverse.json --json --reverse --bitrate 50M
run /dev/null iperf3-bidir.json --json --bidir --bitrate 20M
run /dev/null iperf3-udp.json --json --udp --bitrate 5M
run /dev/null iperf3-stream.jsonl --json-stream --bitrate 100M
"$iperf3" --client 127.0.0.1 --port 9 --json >iperf3-refused.json || true

if [ -n "${IPERF3_12:-}" ]; then
    iperf3="$IPERF3_12"
    run iperf3-3.12-bidir-server.json iperf3-3.12-bidir.json --json --bidir --bitrate 1M
    run iperf3-3.12-udp-bidir-server.json /dev/null --json --udp --bidir --bitrate 1M
fi

# The host that ran it is of no interest.
sed -i 's/"Linux [^"]*"/"Linux alpha 6.18.0 #1 SMP x86_64"/' iperf3-*

python3 - <<'END'
import gzip, json
upload = [None] * 5 + [40.0, 94.0, 95.0, 94.0, 96.0] + [None] * 2
ping = [20.0, 20.2, 20.1, 19.9, 20.0, 25.0, 45.0, 44.0, 46.0, 45.0, 30.0, 20.0]
data = {
    "metadata": {
        "NAME": "tcp_upload", "TIME": "2026-03-12T10:00:00.250000Z", "HOST": "beta.example.org",
        "LOCAL_HOST": "alpha", "LENGTH": 5, "STEP_SIZE": 1.0, "TITLE": "", "FLENT_VERSION": "2.2.0",
        "SERIES_META": {"TCP upload": {"UNITS": "Mbits/s"}, "Ping (ms) ICMP": {"UNITS": "ms"}},
    },
    "raw_values": {}, "version": 4, "x_values": [float(at) for at in range(12)],
    "results": {"Ping (ms) ICMP": ping, "TCP upload": upload, "TCP upload::tcp_cwnd": [10.0] * 12},
}
with open("upload.flent.gz", "wb") as file:
    file.write(gzip.compress(json.dumps(data).encode(), mtime=0))
END
