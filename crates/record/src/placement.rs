use crate::prelude::*;

/// Placement of an end's data threads near the network device that they use, where that was asked
/// for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// The device; `None` where the kernel does not say which it is.
    pub device: Option<String>,
    /// The device's NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The processors that the threads were put on, those of that node; empty where they run
    /// anywhere.
    pub processors: Vec<u16>,
    /// Why they run anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}
