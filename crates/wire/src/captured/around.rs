//! Tags and tunnels around a packet.

/// Identifies the network that a packet belongs to, where several share a link.
#[derive(Clone, Copy, Default)]
pub(super) struct NetworkLayers {
    /// Hash (FNV-1a) of the layers; zero without any.
    pub network: u32,
}

/// A layer around a packet, by a number of its own.
#[derive(Clone, Copy)]
pub(super) enum OuterLayer {
    Vlan = 1,
    Mpls,
    Pppoe,
    Ip,
    Gre,
    Vxlan,
    Geneve,
    Gtp,
    ServiceInstance,
}

impl NetworkLayers {
    /// Adds a layer with its identification. Both directions of a connection must have the same:
    /// zero for layers where each direction has its own.
    pub(super) fn add_layer(&mut self, layer: OuterLayer, identification: u32) {
        let hash = if self.network == 0 {
            0x811c_9dc5
        } else {
            self.network
        };
        let bytes = [layer as u8]
            .into_iter()
            .chain(identification.to_be_bytes());
        let hash = bytes.fold(hash, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        self.network = hash.max(1);
    }
}
