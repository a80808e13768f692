// SPDX-License-Identifier: MIT OR Apache-2.0
//! Members leave their groups, and their bits become free.

use ringtap_ipc::subscription::SubscriptionId;

use super::Membership;

impl Membership {
    /// Removes a subscription whose bits have no flow rules.
    pub(crate) fn leave(&mut self, subscription: SubscriptionId) {
        let bits = self.take_out(subscription);
        self.release(bits);
    }

    /// Makes room for another member in a subscription's group; its bits stay in use until
    /// [`Membership::leave`].
    pub(crate) fn begin_to_leave(&mut self, subscription: SubscriptionId) {
        for one in &mut self.groups {
            if let Some(at) = one.position(subscription) {
                one.members[at].has_left = true;
            }
        }
    }

    /// Removes a subscription; its buckets pass to the other members of its group. Returns its bits, which stay in
    /// use until [`Membership::release`].
    pub(crate) fn take_out(&mut self, subscription: SubscriptionId) -> u64 {
        let mut bits = 0;
        self.remove_patterns_of(subscription);
        for one in &mut self.groups {
            let Some(at) = one.position(subscription) else {
                continue;
            };
            let bit = one.members.remove(at).bit;
            let is_shared = one.members.iter().any(|member| member.bit == bit);
            let is_empty = one.members.is_empty();
            let group_bit = one.bit.take_if(|_| is_empty);
            let own_bit = bit.filter(|_| !is_shared && bit != one.by_rule_bit);
            for bit in [own_bit, group_bit].into_iter().flatten() {
                bits |= 1 << bit;
            }
            one.share_out();
        }
        bits
    }

    /// Makes bits free for new members: their rules are forgotten.
    pub(crate) fn release(&mut self, bits: u64) {
        self.used_bits &= !bits;
    }
}
