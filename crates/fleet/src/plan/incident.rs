//! Pairs that changed at the same time, joined by what they have in common.

use std::collections::{BTreeMap, BTreeSet};

use super::change::PairChange;

/// An ordered pair of the mesh, as incidents see it.
#[derive(Debug, Clone, PartialEq)]
pub struct PairState {
    /// Place of the sending host in the list of hosts.
    pub sender: usize,
    /// Place of the receiving host.
    pub receiver: usize,
    /// When the newest run began that was as usual, in seconds since 1970.
    pub last_usual: u64,
    /// When its round trips were last measured, in seconds since 1970.
    pub echoed: u64,
    /// How it is otherwise; `None` if it is not.
    pub change: Option<PairChange>,
}

impl PairState {
    /// Returns when it was last seen to be as usual, as far as a cause goes.
    fn last_known(&self, cause: &str) -> u64 {
        if ["round trips", "loss"].contains(&cause) {
            self.last_usual.max(self.echoed)
        } else {
            self.last_usual
        }
    }
}

/// Takes losses of echoes, which have both directions, as those of the direction whose rate has
/// changed with them, where the other one was as usual since then.
pub fn attribute_losses(pairs: &mut [PairState]) {
    let is_slow = |pair: &PairState| {
        let rate = pair.change.as_ref().and_then(|change| change.rate.as_ref());
        rate.map(|_| (pair.receiver, pair.sender))
    };
    let opposite: BTreeSet<(usize, usize)> = pairs.iter().filter_map(is_slow).collect();
    for pair in pairs {
        let Some(losses) = pair.change.as_ref().and_then(PairChange::only_losses) else {
            continue;
        };
        let is_opposite = opposite.contains(&(pair.sender, pair.receiver));
        if is_opposite && pair.last_usual > losses.since {
            pair.change = None;
        }
    }
}

/// One end of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScopeEnd {
    /// A host, by its place in the list of hosts.
    Host(usize),
    /// The hosts of a site, by the place of the first of them.
    Site(usize),
    /// All hosts.
    All,
}

/// What pairs have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// Where their data comes from.
    pub from: ScopeEnd,
    /// Where it goes.
    pub to: ScopeEnd,
    /// True if the other direction is like that, too.
    pub is_both: bool,
}

/// Pairs that are otherwise for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairGroup {
    /// What they have in common.
    pub scope: Scope,
    /// What explains them equally well.
    pub candidates: Vec<Scope>,
    /// What is otherwise: `round trips`, or the name of a limit.
    pub cause: String,
    /// When the first was last as usual and when it was seen to be otherwise, in seconds since
    /// 1970.
    pub onset: (u64, u64),
    /// Places of the pairs that changed.
    pub changed: Vec<usize>,
    /// Places of pairs of the same scope that were as usual since then.
    pub unchanged: Vec<usize>,
    /// Number of pairs of the same scope that nobody has measured since then.
    pub unmeasured: usize,
}

/// Pairs of a scope that are as usual, as a share of those that are known, beyond which it does not
/// explain those that changed.
const CONTRADICTED: f64 = 0.25;

/// Candidates that are named.
const MAX_CANDIDATES: usize = 5;

/// Pairs with one cause whose changes may have been at the same time.
struct Cluster {
    cause: String,
    /// The time that all have in common.
    onset: (u64, u64),
    pairs: Vec<usize>,
}

/// Returns the pairs that are otherwise in groups: those with one cause that may have changed at
/// the same time, as far as a host, a site or a pair of them explains them. `sites` has the place
/// of the first host of the site of each host.
pub fn group_pairs(pairs: &[PairState], sites: &[usize]) -> Vec<PairGroup> {
    let mut groups = Vec::new();
    for cluster in clusters(pairs) {
        split_cluster(pairs, sites, &cluster, &mut groups);
    }
    groups.sort_by_key(|group| (group.onset.1, group.changed.first().copied()));
    groups
}

fn clusters(pairs: &[PairState]) -> Vec<Cluster> {
    let changes = pairs.iter().enumerate();
    let mut changes: Vec<(usize, &PairChange)> = changes
        .filter_map(|(place, pair)| Some((place, pair.change.as_ref()?)))
        .collect();
    changes.sort_by_key(|(place, change)| (change.onset().1, *place));
    let mut clusters: Vec<Cluster> = Vec::new();
    for (place, change) in changes {
        let (after, since) = change.onset();
        let joined = clusters.iter_mut().find(|cluster| {
            is_same_cause(&cluster.cause, change.cause()) && after < cluster.onset.1
        });
        match joined {
            Some(cluster) => {
                cluster.onset.0 = cluster.onset.0.max(after);
                cluster.pairs.push(place);
                if change.cause().len() > cluster.cause.len() {
                    change.cause().clone_into(&mut cluster.cause);
                }
            }
            None => clusters.push(Cluster {
                cause: change.cause().to_owned(),
                onset: (after, since),
                pairs: vec![place],
            }),
        }
    }
    clusters
}

/// Returns true if two causes may be one: losses that echoes show may be those that limit a rate.
fn is_same_cause(one: &str, other: &str) -> bool {
    let is_loss_of = |one: &str, other: &str| one == "loss" && other.starts_with("loss/");
    one == other || is_loss_of(one, other) || is_loss_of(other, one)
}

/// How many pairs of a scope are otherwise, as usual, and not measured.
#[derive(Debug, Clone, Copy, Default)]
struct ScopeCount {
    changed: usize,
    unchanged: usize,
}

impl ScopeCount {
    /// Returns by how much it explains more than it contradicts; `None` if it explains nothing.
    fn score(self) -> Option<usize> {
        let known = self.changed + self.unchanged;
        let is_contradicted = self.unchanged as f64 > CONTRADICTED * known as f64;
        let score = self.changed.checked_sub(2 * self.unchanged)?;
        (!is_contradicted && score > 1).then_some(score)
    }
}

fn split_cluster(
    pairs: &[PairState],
    sites: &[usize],
    cluster: &Cluster,
    groups: &mut Vec<PairGroup>,
) {
    let mut counts: BTreeMap<Scope, ScopeCount> = BTreeMap::new();
    for place in &cluster.pairs {
        for scope in scopes_of_pair(&pairs[*place], sites) {
            counts.entry(scope).or_default().changed += 1;
        }
    }
    let unchanged = pairs.iter().filter(|pair| pair.change.is_none());
    for pair in unchanged.filter(|pair| pair.last_known(&cluster.cause) > cluster.onset.1) {
        for scope in scopes_of_pair(pair, sites) {
            if let Some(count) = counts.get_mut(&scope) {
                count.unchanged += 1;
            }
        }
    }
    let mut left: BTreeSet<usize> = cluster.pairs.iter().copied().collect();
    while let Some(first) = left.first().copied() {
        let (scope, candidates) = best_scopes(&counts).unwrap_or_else(|| {
            let pair = &pairs[first];
            (Scope::of_pair(pair), open_scopes(pair, &counts))
        });
        let has = |pair: &PairState| scope.has_pair(pair, sites);
        let changed: Vec<usize> = left
            .iter()
            .copied()
            .filter(|place| has(&pairs[*place]))
            .collect();
        for place in &changed {
            left.remove(place);
            for scope in scopes_of_pair(&pairs[*place], sites) {
                if let Some(count) = counts.get_mut(&scope) {
                    count.changed -= 1;
                }
            }
        }
        groups.push(group_of(pairs, sites, cluster, scope, candidates, changed));
    }
}

fn group_of(
    pairs: &[PairState],
    sites: &[usize],
    cluster: &Cluster,
    scope: Scope,
    candidates: Vec<Scope>,
    changed: Vec<usize>,
) -> PairGroup {
    let onsets = changed
        .iter()
        .filter_map(|place| pairs[*place].change.as_ref())
        .map(PairChange::onset);
    let onset = onsets.fold((0, u64::MAX), |(after, since), onset| {
        (onset.0.max(after), onset.1.min(since))
    });
    let others = pairs.iter().enumerate();
    let others = others.filter(|(_, pair)| pair.change.is_none() && scope.has_pair(pair, sites));
    let (unchanged, unmeasured): (Vec<_>, Vec<_>) =
        others.partition(|(_, pair)| pair.last_known(&cluster.cause) > onset.1);
    PairGroup {
        scope,
        candidates,
        cause: cluster.cause.clone(),
        onset,
        changed,
        unchanged: unchanged.into_iter().map(|(place, _)| place).collect(),
        unmeasured: unmeasured.len(),
    }
}

/// Returns the scope that explains most, the plainest of those first, and the others that explain
/// as much.
fn best_scopes(counts: &BTreeMap<Scope, ScopeCount>) -> Option<(Scope, Vec<Scope>)> {
    let best = counts.values().filter_map(|count| count.score()).max()?;
    let mut equal: Vec<Scope> = counts
        .iter()
        .filter(|(_, count)| count.score() == Some(best))
        .map(|(scope, _)| *scope)
        .collect();
    equal.sort_by_key(|scope| (scope.plainness(), *scope));
    let first = equal.first().copied()?;
    Some((
        first,
        equal.into_iter().skip(1).take(MAX_CANDIDATES).collect(),
    ))
}

/// Returns the hosts whose other pairs may be like this one: nobody has seen one that is as usual.
fn open_scopes(pair: &PairState, counts: &BTreeMap<Scope, ScopeCount>) -> Vec<Scope> {
    let into = Scope::one_way(ScopeEnd::All, ScopeEnd::Host(pair.receiver));
    let out_of = Scope::one_way(ScopeEnd::Host(pair.sender), ScopeEnd::All);
    let is_open = |scope: &Scope| counts.get(scope).is_some_and(|count| count.unchanged == 0);
    [into, out_of].into_iter().filter(is_open).collect()
}

/// Returns all that a pair may have in common with others.
fn scopes_of_pair(pair: &PairState, sites: &[usize]) -> impl Iterator<Item = Scope> {
    let ends = |host: usize| {
        [
            ScopeEnd::Host(host),
            ScopeEnd::Site(sites[host]),
            ScopeEnd::All,
        ]
    };
    let (from, to) = (ends(pair.sender), ends(pair.receiver));
    let scopes = from
        .into_iter()
        .flat_map(move |from| to.into_iter().map(move |to| (from, to)));
    let scopes: BTreeSet<Scope> = scopes
        .flat_map(|(from, to)| [Scope::one_way(from, to), Scope::both_ways(from, to)])
        .collect();
    scopes.into_iter()
}

impl Scope {
    fn one_way(from: ScopeEnd, to: ScopeEnd) -> Self {
        Self {
            from,
            to,
            is_both: false,
        }
    }

    /// Returns the scope of both directions; those between a place and itself are one.
    fn both_ways(one: ScopeEnd, other: ScopeEnd) -> Self {
        Self {
            from: one.max(other),
            to: one.min(other),
            is_both: one != other,
        }
    }

    fn of_pair(pair: &PairState) -> Self {
        Self::one_way(ScopeEnd::Host(pair.sender), ScopeEnd::Host(pair.receiver))
    }

    /// Returns how far it is from what breaks most often: a host, then a site, then what lies
    /// between two.
    fn plainness(self) -> u8 {
        let rank = match (self.from, self.to) {
            (ScopeEnd::All, ScopeEnd::All) => 4,
            (ScopeEnd::All, ScopeEnd::Host(_)) | (ScopeEnd::Host(_), ScopeEnd::All) => 1,
            (ScopeEnd::Host(_), ScopeEnd::Host(_)) => 0,
            (ScopeEnd::All, _) | (_, ScopeEnd::All) => 2,
            _ => 3,
        };
        2 * rank + u8::from(self.is_both)
    }

    /// Returns true if a pair is one of these.
    pub fn has_pair(self, pair: &PairState, sites: &[usize]) -> bool {
        let has = |end: ScopeEnd, host: usize| match end {
            ScopeEnd::Host(own) => own == host,
            ScopeEnd::Site(site) => sites[host] == site,
            ScopeEnd::All => true,
        };
        let (one, other) = (pair.sender, pair.receiver);
        (has(self.from, one) && has(self.to, other))
            || (self.is_both && has(self.from, other) && has(self.to, one))
    }

    /// Returns the pairs in words: `into B`, `from A to site east`.
    pub fn words(self, host: impl Fn(usize) -> String, site: impl Fn(usize) -> String) -> String {
        let name = |end| match end {
            ScopeEnd::Host(place) => host(place),
            ScopeEnd::Site(place) => format!("site {}", site(place)),
            ScopeEnd::All => "all hosts".to_owned(),
        };
        match (self.from, self.to, self.is_both) {
            (ScopeEnd::All, ScopeEnd::All, _) => "of the fleet".to_owned(),
            (ScopeEnd::All, to, false) => format!("into {}", name(to)),
            (from, ScopeEnd::All, false) => format!("out of {}", name(from)),
            (ScopeEnd::All, one, true) => format!("with {}", name(one)),
            (one, other, true) => format!("between {} and {}", name(other), name(one)),
            (from, to, false) if from == to => format!("within {}", name(to)),
            (from, to, false) => format!("from {} to {}", name(from), name(to)),
        }
    }
}
