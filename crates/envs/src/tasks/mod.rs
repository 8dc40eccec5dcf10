//! Built-in tasks: small games in Rust, each of which tests one ability of an agent.
//!
//! All draw grayscale images of at least 10 x 10, so that one small stack of convolutions fits all of them. States that
//! call for different actions look different, except where the task tests memory.

mod catch;
mod deep_sea;
#[cfg(test)]
mod exploration_tests;
mod key_door;
mod memory;
mod task;
mod task_environments;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use catch::Catch;
use deep_sea::DeepSea;
use key_door::KeyDoor;
use memory::Memory;
use task::Task;

pub use task::TaskError;
pub use task_environments::TaskEnvironments;

/// Minimum height and width of an image, in pixels.
const MIN_SIDE: usize = 10;

/// One of the built-in tasks.
pub struct BuiltIn {
    /// The name before the colon.
    pub name: &'static str,
    /// The parameter after the colon, if the task has one.
    pub parameter: Option<Parameter>,
    make: fn(usize) -> Box<dyn Task>,
}

/// The number that may follow a task's name.
pub struct Parameter {
    /// The meaning of the number, in one word.
    pub meaning: &'static str,
    /// The number that the plain name stands for.
    pub default: usize,
    /// The valid numbers.
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
    /// Finds the task of a name, whatever follows the colon.
    fn find(name: &str) -> Option<&'static Self> {
        let stem = name.split(':').next()?;
        BUILT_IN.iter().find(|task| task.name == stem)
    }
}

/// Lists the names of all tasks.
pub fn names() -> String {
    BUILT_IN.each_ref().map(|task| task.name).join(", ")
}

/// Makes the task of a name such as `deep_sea` or `deep_sea:14`; returns its full name as well.
pub fn make(name: &str) -> Result<(String, Box<dyn Task>), TaskError> {
    let built_in = BuiltIn::find(name).ok_or_else(|| TaskError::Unknown { name: name.to_owned() })?;
    let (task, given) = (built_in.name, name.split_once(':').map(|(_, given)| given));
    let Some(Parameter { meaning, default, range }) = &built_in.parameter else {
        return match given {
            None => Ok((task.to_owned(), (built_in.make)(0))),
            Some(given) => Err(TaskError::NoParameter { task, parameter: given.to_owned() }),
        };
    };
    let value = given.map_or(Some(*default), |given| given.parse().ok().filter(|value| range.contains(value)));
    let value = value.ok_or_else(|| {
        let parameter = given.unwrap_or_default().to_owned();
        TaskError::BadParameter { task, parameter, meaning, least: *range.start(), most: *range.end() }
    })?;
    Ok((format!("{task}:{value}"), (built_in.make)(value)))
}

/// Returns the side of a cell in pixels for a board of `cells` cells per side: 1, or enough for the least image.
fn cell_size(cells: usize) -> usize {
    MIN_SIDE.div_ceil(cells)
}

/// Fills one cell of a square board of `cells` cells per side.
fn fill_cell(image: &mut [u8], cells: usize, row: usize, column: usize, value: u8) {
    let size = cell_size(cells);
    let width = cells * size;
    for line in image.chunks_exact_mut(width).skip(row * size).take(size) {
        line[column * size..(column + 1) * size].fill(value);
    }
}
