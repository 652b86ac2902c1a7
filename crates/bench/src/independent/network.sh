# Makes the devices and addresses of two hosts, two routers and the box between these. $p is the prefix of the namespaces;
# $rate, $burst, $limit and $gro are of the plan.
for name in near nearrouter box farrouter far; do ip netns add $p$name; ip -n $p$name link set lo up; done
join() { ip link add $1 netns $p$2 type veth peer name $3 netns $p$4; }
join host0 near host0 nearrouter
join path0 nearrouter near0 box
join host0 far host0 farrouter; join path0 farrouter far0 box
for device in near:host0 nearrouter:host0 nearrouter:path0 box:near0 box:far0 farrouter:path0 farrouter:host0 far:host0; do
    ip -n $p${device%:*} link set ${device#*:} up txqueuelen 10000
done
address() { ip -n $p$1 address add $2/24 dev $3; }
address nearrouter 198.18.10.2 host0
address far 198.18.12.1 host0; address farrouter 198.18.12.2 host0
address nearrouter 198.18.11.1 path0; address farrouter 198.18.11.2 path0
ip -n ${p}far route add default via 198.18.12.2
ip -n ${p}nearrouter route add 198.18.12.0/24 via 198.18.11.2
ip -n ${p}farrouter route add 198.18.10.0/24 via 198.18.11.1
ethernet() { ip netns exec $p$1 cat /sys/class/net/path0/address; }
ip -n ${p}nearrouter neigh add 198.18.11.2 lladdr $(ethernet farrouter) dev path0
ip -n ${p}farrouter neigh add 198.18.11.1 lladdr $(ethernet nearrouter) dev path0
for router in nearrouter farrouter; do
    ip netns exec $p$router sysctl -qw net.ipv4.ip_forward=1
    ip netns exec $p$router tc qdisc add dev path0 root tbf rate ${rate}bit burst $burst limit $limit
done
for host in near far; do ip netns exec $p$host sh -ec '
ethtool -K host0 tso off gso off gro '$gro'
sysctl -qw net.ipv4.tcp_rmem="4096 131072 67108864" net.ipv4.tcp_wmem="4096 65536 67108864" \
    net.ipv4.tcp_no_metrics_save=1
'; done
address near 198.18.10.1 host0
ip -n ${p}near route add default via 198.18.10.2
