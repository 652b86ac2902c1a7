//! Types of links, as captures number them.

use std::fmt;

/// Link-layer header type of a captured packet: a number of the list `LINKTYPE_` of tcpdump.org.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD's loopback, with the address family in the order of the host that captured.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// PPP.
    pub const PPP: Self = Self(9);
    /// IP without a link's header.
    pub const RAW: Self = Self(101);
    /// OpenBSD's loopback, with the address family in network order.
    pub const LOOP: Self = Self(108);
    /// Linux's cooked capture, as `tcpdump -i any` wrote it until 2020.
    pub const LINUX_SLL: Self = Self(113);
    /// Linux's cooked capture with the index of the interface.
    pub const LINUX_SLL2: Self = Self(276);
}

impl LinkType {
    /// Returns its name in the list of tcpdump.org, without `LINKTYPE_`; `None` for one that is rare.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

const NAMES: [(u16, &str); 88] = [
    (0, "NULL"),
    (1, "ETHERNET"),
    (3, "AX25"),
    (6, "IEEE802_5"),
    (7, "ARCNET_BSD"),
    (8, "SLIP"),
    (9, "PPP"),
    (10, "FDDI"),
    (50, "PPP_HDLC"),
    (51, "PPP_ETHER"),
    (99, "SYMANTEC_FIREWALL"),
    (100, "ATM_RFC1483"),
    (101, "RAW"),
    (104, "C_HDLC"),
    (105, "IEEE802_11"),
    (107, "FRELAY"),
    (108, "LOOP"),
    (113, "LINUX_SLL"),
    (114, "LTALK"),
    (117, "PFLOG"),
    (119, "IEEE802_11_PRISM"),
    (122, "IP_OVER_FC"),
    (123, "SUNATM"),
    (127, "IEEE802_11_RADIOTAP"),
    (129, "ARCNET_LINUX"),
    (138, "APPLE_IP_OVER_IEEE1394"),
    (140, "MTP2"),
    (141, "MTP3"),
    (142, "SCCP"),
    (143, "DOCSIS"),
    (144, "LINUX_IRDA"),
    (147, "USER0"),
    (163, "IEEE802_11_AVS"),
    (165, "BACNET_MS_TP"),
    (166, "PPP_PPPD"),
    (169, "GPRS_LLC"),
    (177, "LINUX_LAPD"),
    (182, "MFR"),
    (187, "BLUETOOTH_HCI_H4"),
    (189, "USB_LINUX"),
    (192, "PPI"),
    (195, "IEEE802_15_4_WITHFCS"),
    (197, "ERF"),
    (201, "BLUETOOTH_HCI_H4_WITH_PHDR"),
    (202, "AX25_KISS"),
    (203, "LAPD"),
    (204, "PPP_WITH_DIR"),
    (205, "C_HDLC_WITH_DIR"),
    (206, "FRELAY_WITH_DIR"),
    (209, "IPMB_LINUX"),
    (215, "IEEE802_15_4_NONASK_PHY"),
    (220, "USB_LINUX_MMAPPED"),
    (224, "FC_2"),
    (225, "FC_2_WITH_FRAME_DELIMS"),
    (226, "IPNET"),
    (227, "CAN_SOCKETCAN"),
    (228, "IPV4"),
    (229, "IPV6"),
    (230, "IEEE802_15_4_NOFCS"),
    (231, "DBUS"),
    (235, "DVB_CI"),
    (239, "NFLOG"),
    (240, "NETANALYZER"),
    (241, "NETANALYZER_TRANSPARENT"),
    (242, "IPOIB"),
    (243, "MPEG_2_TS"),
    (244, "NG40"),
    (245, "NFC_LLCP"),
    (247, "INFINIBAND"),
    (248, "SCTP"),
    (249, "USBPCAP"),
    (251, "BLUETOOTH_LE_LL"),
    (253, "NETLINK"),
    (254, "BLUETOOTH_LINUX_MONITOR"),
    (256, "BLUETOOTH_LE_LL_WITH_PHDR"),
    (258, "PKTAP"),
    (259, "EPON"),
    (265, "RDS"),
    (266, "USB_DARWIN"),
    (268, "SDLC"),
    (271, "VSOCK"),
    (272, "NORDIC_BLE"),
    (274, "ETHERNET_MPACKET"),
    (276, "LINUX_SLL2"),
    (280, "VPP_DISPATCH"),
    (283, "IEEE802_15_4_TAP"),
    (284, "DSA_TAG_DSA"),
    (288, "USB_2_0"),
];
