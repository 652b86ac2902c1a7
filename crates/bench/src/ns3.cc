// One CUBIC connection over one link, in ns-3. Arguments: bits a second, one-way delay in nanoseconds, bytes of the
// queue, share of packets lost, seconds. Prints the bytes received and the seconds of processor time spent.

#include <ctime>
#include <iostream>
#include <string>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

int main(int argc, char** argv)
{
    if (argc != 6)
        return 2;
    const double seconds = std::stod(argv[5]);
    const UintegerValue buffer(256u << 20);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", buffer);
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", buffer);

    NodeContainer nodes;
    nodes.Create(2);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(std::stoull(argv[1]))));
    link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(std::stoll(argv[2]))));
    const QueueSize queue(QueueSizeUnit::BYTES, std::stoul(argv[3]));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", QueueSizeValue(queue));
    NetDeviceContainer devices = link.Install(nodes);
    if (const double loss = std::stod(argv[4]); loss > 0) {
        Ptr<RateErrorModel> losses = CreateObject<RateErrorModel>();
        losses->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
        losses->SetRate(loss);
        devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(losses));
    }
    InternetStackHelper().Install(nodes);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    // The queue of the device is the only one.
    TrafficControlHelper().Uninstall(devices);

    const uint16_t port = 5201;
    PacketSinkHelper receiver("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    ApplicationContainer sink = receiver.Install(nodes.Get(1));
    BulkSendHelper sender("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(1), port));
    sender.SetAttribute("MaxBytes", UintegerValue(0));
    sender.Install(nodes.Get(0));

    Simulator::Stop(Seconds(seconds));
    const std::clock_t began = std::clock();
    Simulator::Run();
    const double spent = double(std::clock() - began) / CLOCKS_PER_SEC;
    std::cout << DynamicCast<PacketSink>(sink.Get(0))->GetTotalRx() << " " << spent << std::endl;
    Simulator::Destroy();
}
