//! Built-in tasks: small games in Rust, each of which shows one ability of an agent.
//!
//! All draw small grayscale images of at least 10 x 10, so that one small stack of convolutions fits them all, and no
//! two states that call for different actions look alike, except where memory is what the task is about.

mod catch;
mod deep_sea;
#[cfg(test)]
mod exploration;
mod key_door;
mod memory;
#[cfg(test)]
mod play;
mod progress;
mod set;
mod task;

use std::ops::RangeInclusive;

use catch::Catch;
use deep_sea::DeepSea;
use key_door::KeyDoor;
use memory::Memory;
use task::Task;

pub use set::{TaskEnvironments, TaskSet};
pub use task::TaskError;

/// The least height and width of an image in pixels.
const LEAST_SIDE: usize = 10;

/// One of the built-in tasks.
pub struct BuiltIn {
    /// What stands before the colon.
    pub name: &'static str,
    /// What may stand after the colon.
    pub parameter: Option<Parameter>,
    make: fn(usize) -> Box<dyn Task>,
}

/// The number that may follow a task's name.
pub struct Parameter {
    /// What the number says, in one word.
    pub meaning: &'static str,
    /// The number of the plain name.
    pub default: usize,
    /// What the number may be.
    pub range: RangeInclusive<usize>,
}

/// All built-in tasks, from the easiest to the hardest.
pub static BUILT_IN: [BuiltIn; 4] = [
    BuiltIn { name: "catch", parameter: None, make: |_| Box::new(Catch::new()) },
    BuiltIn {
        name: "memory",
        parameter: Some(Parameter { meaning: "delay", default: Memory::DEFAULT_DELAY, range: Memory::DELAYS }),
        make: |delay| Box::new(Memory::new(delay)),
    },
    BuiltIn {
        name: "deep_sea",
        parameter: Some(Parameter { meaning: "size", default: DeepSea::DEFAULT_SIZE, range: DeepSea::SIZES }),
        make: |n| Box::new(DeepSea::new(n)),
    },
    BuiltIn {
        name: "key_door",
        parameter: Some(Parameter { meaning: "size", default: KeyDoor::DEFAULT_SIZE, range: KeyDoor::SIZES }),
        make: |n| Box::new(KeyDoor::new(n)),
    },
];

impl BuiltIn {
    /// How the task is asked for: `catch`, `memory[:delay]`.
    pub fn usage(&self) -> String {
        match &self.parameter {
            None => self.name.to_owned(),
            Some(parameter) => format!("{}[:{}]", self.name, parameter.meaning),
        }
    }

    /// The built-in task that `name` asks for, whatever follows the colon.
    pub fn find(name: &str) -> Option<&'static BuiltIn> {
        let stem = name.split(':').next()?;
        BUILT_IN.iter().find(|task| task.name == stem)
    }
}

/// Makes the task that a user asked for: a name of [`BUILT_IN`], then `:` and its parameter if it is not the default.
pub fn make(name: &str) -> Result<Box<dyn Task>, TaskError> {
    let built_in = BuiltIn::find(name).ok_or_else(|| TaskError::Unknown { name: name.to_owned() })?;
    let (task, given) = (built_in.name, name.split_once(':').map(|(_, given)| given));
    let value = match (&built_in.parameter, given) {
        (None, None) => 0,
        (None, Some(given)) => {
            return Err(TaskError::NoParameter { task, parameter: given.to_owned() });
        }
        (Some(parameter), None) => parameter.default,
        (Some(parameter), Some(given)) => {
            let Parameter { meaning, range, .. } = parameter;
            given.parse().ok().filter(|value| range.contains(value)).ok_or_else(|| TaskError::BadParameter {
                task,
                parameter: given.to_owned(),
                meaning,
                range: range.clone(),
            })?
        }
    };
    Ok((built_in.make)(value))
}

/// How all tasks are asked for, for messages.
fn usages() -> String {
    BUILT_IN.iter().map(BuiltIn::usage).collect::<Vec<_>>().join(", ")
}

/// Pixels of the side of a cell, for a board of so many cells a side: 1, or enough for the least image.
fn cell_size(cells: usize) -> usize {
    LEAST_SIDE.div_ceil(cells)
}

/// Fills one cell of a square board that is `cells` wide.
fn fill_cell(image: &mut [u8], cells: usize, row: usize, column: usize, value: u8) {
    let size = cell_size(cells);
    let width = cells * size;
    for line in image.chunks_exact_mut(width).skip(row * size).take(size) {
        line[column * size..(column + 1) * size].fill(value);
    }
}

#[cfg(test)]
mod tests {
    use super::task::Scores;
    use super::*;

    #[test]
    fn plain_names_stand_for_the_default_parameter() {
        for (asked, name) in [
            ("catch", "catch"),
            ("memory", "memory:8"),
            ("deep_sea", "deep_sea:10"),
            ("deep_sea:14", "deep_sea:14"),
            ("key_door", "key_door:9"),
        ] {
            assert_eq!(make(asked).unwrap().name(), name);
            assert_eq!(make(name).unwrap().name(), name);
        }
    }

    #[test]
    fn every_parameter_in_range_makes_a_task() {
        for task in &BUILT_IN {
            let Some(parameter) = &task.parameter else {
                continue;
            };
            for value in [*parameter.range.start(), *parameter.range.end()] {
                let made = make(&format!("{}:{value}", task.name)).unwrap();
                let (height, width) = made.image_size();
                assert!(height.min(width) >= LEAST_SIDE && height.max(width) <= 50, "{}", made.name());
            }
        }
    }

    #[test]
    fn a_wrong_name_or_parameter_is_refused_in_a_sentence() {
        let refused = |name: &str| make(name).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(
            refused("chess"),
            "there is no built-in task `chess`; there are catch, memory[:delay], deep_sea[:size], key_door[:size]"
        );
        assert_eq!(refused("catch:3"), "the task `catch` takes no parameter, and `3` was given");
        let sentence = |given: &str| {
            format!("`{given}` is no size of the task `deep_sea`: it must be a whole number from 2 to 50")
        };
        for given in ["", "1", "51", "ten", "-4", "10:3", "99999999999999999999999"] {
            assert_eq!(refused(&format!("deep_sea:{given}")), sentence(given));
        }
        assert!(BuiltIn::find("gym:CartPole-v1").is_none() && BuiltIn::find("pong").is_none());
    }

    #[test]
    fn the_best_scores_stand_out() {
        for task in &BUILT_IN {
            let Scores { best, random, naive } = make(task.name).unwrap().scores();
            assert!(best > random.max(naive) + 0.9, "{}", task.name);
        }
    }
}
