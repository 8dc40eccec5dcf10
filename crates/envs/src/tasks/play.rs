//! Plays single tasks in tests.

use super::task::Task;
use crate::environments::Ending;
use crate::seeds::episode_seed;

/// The result of an episode.
pub struct Episode {
    pub score: f64,
    pub steps: u64,
    pub ending: Ending,
}

/// Draws the current image of a task.
pub fn image(task: &dyn Task) -> Vec<u8> {
    let (height, width) = task.image_size();
    let mut image = vec![1; height * width];
    task.draw(&mut image);
    image
}

/// Plays one episode with a policy of the image and the number of steps taken.
pub fn play(task: &mut dyn Task, seed: u64, mut policy: impl FnMut(&[u8], usize) -> usize) -> Episode {
    task.reset(seed);
    let mut image = image(task);
    let mut score = 0.0;
    for step in 0.. {
        let outcome = task.step(policy(&image, step));
        score += outcome.reward;
        if let Some(ending) = outcome.ending {
            return Episode { score, steps: step as u64 + 1, ending };
        }
        task.draw(&mut image);
    }
    unreachable!("every task ends its episodes")
}

/// Returns the mean score of a policy over the first episodes of environment 0 of run 0.
pub fn mean_score(task: &mut dyn Task, episodes: u64, mut policy: impl FnMut(&[u8], usize) -> usize) -> f64 {
    let scores = (0..episodes).map(|episode| play(task, episode_seed(0, 0, episode), &mut policy).score);
    scores.sum::<f64>() / episodes as f64
}
