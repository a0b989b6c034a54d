//! What an endpoint speaks for: all members, or one.

use crate::model::MemberKey;

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Scope {
    /// `/mcp`
    All,
    /// `/mcp/{name}`
    One(MemberKey),
}

impl Scope {
    pub(super) fn includes(&self, member: &MemberKey) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == member,
        }
    }
}
