use std::time::Instant;

use smallvec::SmallVec;

use crate::ground::claim::Claim;
use crate::ground::error::Error;
use crate::ground::loss::LossCause;
use crate::store::Renewal;
use crate::stores::quorum::Quorum;
use crate::stores::quorum::node::Purpose;
use crate::stores::quorum::tally::reason_of;

impl Quorum {
    pub(super) fn renew_by_majority(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        let Some(lease) = claims.iter().map(|claim| claim.lease).min() else {
            return Vec::new();
        };
        let (holds, is_spent): (Vec<u64>, Vec<bool>) = {
            let placements = self.placements.lock();
            let most = self.settings.max_extensions;
            let of = |claim: &Claim| match placements.get(&claim.visitor) {
                Some(placement) => (
                    placement.nodes,
                    most.is_some_and(|most| placement.extensions >= most),
                ),
                None => (self.all(), false),
            };
            claims.iter().map(of).unzip()
        };
        if is_spent.contains(&true) {
            return self.renew_unspent(claims, &is_spent, deadline);
        }
        let mut said: Vec<SmallVec<[(usize, Renewal); 5]>> =
            claims.iter().map(|_| SmallVec::new()).collect();
        let order = self.in_order(self.all(), &holds, Purpose::Renewal);
        let failed = |error: Error| vec![Renewal::Unknown(reason_of(&error)); claims.len()];
        let mut fan_out = self.send(order, Purpose::Renewal, lease, deadline, |node, by| {
            node.node.send_renew(claims, &node.handle, by)
        });
        let mut answered = 0;
        while let Some((index, answers)) = fan_out.next() {
            let answers = answers.unwrap_or_else(failed);
            let is_unknown = |answer: &Renewal| matches!(answer, Renewal::Unknown(_));
            answered += usize::from(!answers.iter().all(is_unknown));
            fan_out.is_needed = answered < self.needed;
            for (said, answer) in said.iter_mut().zip(answers) {
                said.push((index, answer));
            }
        }
        let mut outcomes = Vec::with_capacity(claims.len());
        for (claim, said) in claims.iter().zip(&said) {
            let outcome = self.renewal_of(said);
            if outcome == Renewal::Renewed {
                if let Some(placement) = self.placements.lock().get_mut(&claim.visitor) {
                    placement.extensions = placement.extensions.saturating_add(1);
                }
                let gone = Renewal::Lost(LossCause::Gone);
                let without = said.iter().filter(|(_, renewal)| *renewal == gone);
                let without: Vec<usize> = without.map(|(index, _)| *index).collect();
                if !without.is_empty() {
                    self.give_back(claim, &without, deadline);
                }
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn renew_unspent(
        &self,
        claims: &[Claim],
        is_spent: &[bool],
        deadline: Instant,
    ) -> Vec<Renewal> {
        let pairs = claims.iter().zip(is_spent);
        let unspent = pairs.filter(|(_, is_spent)| !**is_spent);
        let unspent: Vec<Claim> = unspent.map(|(claim, _)| claim.clone()).collect();
        let mut outcomes = self.renew_by_majority(&unspent, deadline).into_iter();
        let spent = "it was renewed as often as max_extensions allows";
        let outcomes = is_spent.iter().map(|is_spent| {
            let outcome = (!is_spent).then(|| outcomes.next()).flatten();
            outcome.unwrap_or_else(|| Renewal::Unknown(spent.to_owned()))
        });
        outcomes.collect()
    }

    fn renewal_of(&self, renewals: &[(usize, Renewal)]) -> Renewal {
        let is_renewed = |(_, renewal): &&(usize, Renewal)| *renewal == Renewal::Renewed;
        let renewed = renewals.iter().filter(is_renewed).count();
        if renewed >= self.needed {
            return Renewal::Renewed;
        }
        let losses: Vec<&LossCause> = renewals
            .iter()
            .filter_map(|(_, renewal)| match renewal {
                Renewal::Lost(cause) => Some(cause),
                _ => None,
            })
            .collect();
        if losses.len() > self.nodes.len() - self.needed {
            let held = losses.iter().find(|cause| ***cause != LossCause::Gone);
            return Renewal::Lost(held.copied().cloned().unwrap_or(LossCause::Gone));
        }
        let mut reason = format!(
            "{renewed} of {} nodes confirmed the renewal, {} are needed",
            self.nodes.len(),
            self.needed
        );
        for (index, renewal) in renewals {
            if let (Some(node), Renewal::Unknown(why)) = (self.nodes.get(*index), renewal) {
                reason.push_str(&format!("; {}: {why}", node.name()));
            }
        }
        Renewal::Unknown(reason)
    }
}
