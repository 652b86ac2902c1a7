//! One cell: the kernel's runs and the simulated ones.

use fullpipe_record::HostSettings;
use fullpipe_sim::{Granularity, NotModelled, Plan, Simulation};
use fullpipe_units::{Ratio, median};

use super::course::{Course, medians};
use super::recorded::RecordedCell;

/// Simulated runs of a cell with random loss, among which the kernel's are ranked.
const RANKED: u16 = 60;

/// The runs of a cell.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) name: String,
    /// Congestion control.
    pub(crate) control: String,
    pub(crate) has_loss: bool,
    pub(crate) kernel: Vec<Course>,
    pub(crate) simulated: Vec<Course>,
}

/// The two figures of a run that are compared by their medians.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    Goodput,
    Retransmits,
}

impl Cell {
    /// Simulates what `recorded` has recorded, with `seeds` seeds, or more of them where losses fall to chance.
    ///
    /// # Errors
    /// Fails if the cell has something that is not modelled.
    pub(crate) fn simulate(recorded: &RecordedCell, seeds: u16, granularity: Granularity) -> Result<Self, NotModelled> {
        let first = &recorded.runs[0];
        let has_loss = first.path.forward.loss.is_some_and(|loss| loss > Ratio::ZERO);
        let seeds = if has_loss { seeds.max(RANKED) } else { seeds };
        let request = first.run.resolved.as_deref().unwrap_or(&first.run.request);
        let [sender, receiver] = [first.run.sender(), first.run.receiver()]
            .map(|end| end.settings.clone().unwrap_or_else(HostSettings::of_linux_6_18));
        let control = request.congestion.clone().unwrap_or_else(|| sender.congestion_control.clone());
        let plan = |seed| Plan {
            granularity,
            ..Plan::new(first.path.clone(), [sender.clone(), receiver.clone()], request.clone(), seed)
        };
        let simulate = |seed: u16| Ok(Course::of(&Simulation::new(plan(seed.into()))?.measure()));
        Ok(Self {
            name: recorded.name.clone(),
            control,
            has_loss,
            kernel: recorded.runs.iter().map(|recorded| Course::of(&recorded.run)).collect(),
            simulated: (1..=seeds).map(simulate).collect::<Result<_, _>>()?,
        })
    }

    /// Returns by how much the simulated median is off the kernel's, of which it is a share; by segments where there
    /// are none.
    pub(crate) fn error(&self, figure: Figure) -> f64 {
        let of = |courses: &[Course]| medians(courses).map_or(f64::NAN, |medians| figure.choose(medians));
        let (kernel, simulated) = (of(&self.kernel), of(&self.simulated));
        (simulated - kernel) / kernel.max(if figure == Figure::Retransmits { 1.0 } else { f64::MIN_POSITIVE })
    }

    /// Returns the median over the kernel's runs of the median over the simulated ones of their windows' distance.
    pub(crate) fn distance(&self) -> Option<f64> {
        let from = |kernel: &Course| {
            let distances: Vec<f64> = self.simulated.iter().filter_map(|other| kernel.distance(other)).collect();
            median(distances)
        };
        median(self.kernel.iter().filter_map(from).collect())
    }

    /// Returns the median distance of the kernel's runs from each other.
    pub(crate) fn own_distance(&self) -> Option<f64> {
        let pairs = self.kernel.iter().enumerate().flat_map(|(index, first)| {
            self.kernel
                .iter()
                .enumerate()
                .filter(move |(other, _)| *other != index)
                .map(move |(_, second)| [first, second])
        });
        median(pairs.filter_map(|[first, second]| first.distance(second)).collect())
    }

    /// Returns whether the simulated median lies between the kernel's runs, where there are enough of them to have a
    /// spread.
    pub(crate) fn is_inside(&self, figure: Figure) -> bool {
        const ENOUGH: usize = 3;
        let [low, high] = range(&self.kernel, figure);
        let simulated = medians(&self.simulated).map_or(f64::NAN, |medians| figure.choose(medians));
        self.kernel.len() >= ENOUGH && low <= simulated && simulated <= high
    }
}

impl Figure {
    pub(crate) const fn choose(self, [goodput, retransmits]: [f64; 2]) -> f64 {
        match self {
            Self::Goodput => goodput,
            Self::Retransmits => retransmits,
        }
    }

    pub(crate) fn of(self, course: &Course) -> f64 {
        self.choose([course.goodput, course.retransmits])
    }
}

/// Returns the least and the greatest.
pub(crate) fn range(courses: &[Course], figure: Figure) -> [f64; 2] {
    let of = courses.iter().map(|course| figure.of(course));
    [of.clone().fold(f64::INFINITY, f64::min), of.fold(f64::NEG_INFINITY, f64::max)]
}
