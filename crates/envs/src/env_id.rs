//! Names of environments, as users type them.

use std::fmt;
use std::str::FromStr;

use strsim::osa_distance;

use crate::error::{EnvError, NameHint};
use crate::games::{self, Game};
use crate::tasks::{self, TaskError};

/// An Atari game, a built-in task or a Gymnasium environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvId {
    /// One of the 57 games, by ROM name: `pong`.
    Atari(String),
    /// A Gymnasium environment: `gym:CartPole-v1`, or `gym:my_module:MyEnv-v0` with a module to import first.
    Gym {
        /// The module that registers the environment when imported.
        module: Option<String>,
        /// The argument of `gymnasium.make`.
        id: String,
    },
    /// A built-in task, with its parameter if one was given: `catch`, `memory:20`.
    Task(String),
}

impl EnvId {
    /// Returns the Atari game, if this is one.
    pub fn game(&self) -> Option<&'static Game> {
        match self {
            Self::Atari(rom) => games::game(rom),
            Self::Gym { .. } | Self::Task(_) => None,
        }
    }
}

impl fmt::Display for EnvId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Atari(name) | Self::Task(name) => f.write_str(name),
            Self::Gym { module: Some(module), id } => write!(f, "gym:{module}:{id}"),
            Self::Gym { module: None, id } => write!(f, "gym:{id}"),
        }
    }
}

impl FromStr for EnvId {
    type Err = EnvError;

    fn from_str(text: &str) -> Result<Self, EnvError> {
        let unknown = |hint| EnvError::UnknownEnvironment { name: text.to_owned(), hint };
        if let Some(rest) = text.strip_prefix("gym:") {
            let (module, id) = match rest.split_once(':') {
                Some((module, id)) => (Some(module), id),
                None => (None, rest),
            };
            if id.is_empty() || module.is_some_and(str::is_empty) {
                return Err(unknown(NameHint::IncompleteGym));
            }
            return Ok(Self::Gym { module: module.map(str::to_owned), id: id.to_owned() });
        }
        if games::game(text).is_some() {
            return Ok(Self::Atari(text.to_owned()));
        }
        // Making a task checks its parameter and is cheap.
        match tasks::make(text) {
            Ok(_) => Ok(Self::Task(text.to_owned())),
            Err(TaskError::Unknown { .. }) => Err(unknown(suggestion(text))),
            Err(error) => Err(error.into()),
        }
    }
}

/// Finds the game that other libraries call `ALE/Pong-v5`, `PongNoFrameskip-v4` or `PongDeterministic-v0`.
fn gymnasium_name(id: &str) -> Option<&'static Game> {
    let name = id.strip_prefix("ALE/").unwrap_or(id).rsplit_once("-v")?.0;
    let name =
        ["NoFrameskip", "Deterministic", "-ram"].iter().fold(name, |name, end| name.strip_suffix(end).unwrap_or(name));
    games::games().iter().find(|game| plain(&game.rom) == plain(name))
}

/// Drops from a name what people spell in different ways.
fn plain(name: &str) -> String {
    name.to_lowercase().replace(['_', '-', ' ', '\''], "")
}

/// Suggests the valid names most similar to `text`.
fn suggestion(text: &str) -> NameHint {
    if let Some(game) = gymnasium_name(text) {
        return NameHint::Similar(vec![game.rom.clone()]);
    }
    // Gymnasium names its environments like this: `CartPole-v1`.
    if text.rsplit_once("-v").is_some_and(|(_, version)| version.parse::<u32>().is_ok()) {
        return NameHint::Similar(vec![format!("gym:{text}")]);
    }
    let wanted = plain(text);
    let mut candidates: Vec<(usize, bool, &str)> = games::games()
        .iter()
        .map(|game| game.rom.as_str())
        .chain(tasks::BUILT_IN.iter().map(|task| task.name))
        .map(|name| {
            let name_plain = plain(name);
            // A prefix of a name counts as near, however long the rest is.
            let is_prefix = !wanted.is_empty() && name_plain.starts_with(&wanted);
            (if is_prefix { 0 } else { osa_distance(&wanted, &name_plain) }, name_plain != wanted, name)
        })
        .collect();
    candidates.sort();
    // A name that only differs in spelling is the only suggestion.
    let most = if candidates.iter().any(|(_, differs, _)| !differs) { 1 } else { 3 };
    let close: Vec<String> = candidates
        .iter()
        .take_while(|(distance, ..)| *distance <= 2 + wanted.chars().count() / 4)
        .take(most)
        .map(|(.., name)| (*name).to_owned())
        .collect();
    if close.is_empty() { NameHint::NothingSimilar } else { NameHint::Similar(close) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> EnvId {
        text.parse().unwrap()
    }

    fn refused(text: &str) -> String {
        text.parse::<EnvId>().unwrap_err().to_string()
    }

    #[test]
    fn parses_names_of_all_kinds() {
        assert_eq!(parsed("pong"), EnvId::Atari("pong".into()));
        assert_eq!(parsed("pong").game(), games::game("pong"));
        assert_eq!(parsed("catch").game(), None);
        assert_eq!(parsed("gym:CartPole-v1"), EnvId::Gym { module: None, id: "CartPole-v1".into() });
        assert_eq!(parsed("gym:ALE/Pong-v5"), EnvId::Gym { module: None, id: "ALE/Pong-v5".into() });
        assert_eq!(parsed("gym:mine.envs:A-v0"), EnvId::Gym { module: Some("mine.envs".into()), id: "A-v0".into() });
        assert_eq!(parsed("catch"), EnvId::Task("catch".into()));
        assert_eq!(parsed("deep_sea:14"), EnvId::Task("deep_sea:14".into()));
    }

    #[test]
    fn displays_names_as_typed() {
        for text in ["pong", "gym:CartPole-v1", "gym:mine:A-v0", "catch", "memory:20"] {
            assert_eq!(parsed(text).to_string(), text);
        }
    }

    #[test]
    fn suggests_similar_names() {
        assert_eq!(refused("pon"), "unknown environment `pon`: did you mean `pong`?");
        for name in ["PONG", "Pong-v4", "ALE/Pong-v5", "PongNoFrameskip-v4"] {
            assert_eq!(refused(name), format!("unknown environment `{name}`: did you mean `pong`?"));
        }
        assert!(refused("CartPole-v1").ends_with("did you mean `gym:CartPole-v1`?"));
        assert!(refused("MontezumaRevenge").ends_with("did you mean `montezuma_revenge`?"));
        assert!(refused("ALE/MontezumaRevenge-v5").ends_with("did you mean `montezuma_revenge`?"));
        assert!(refused("space-invader").contains("`space_invaders`"));
        assert!(refused("ms").contains("`ms_pacman`"));
        assert!(refused("deepsea").contains("`deep_sea`"));
        assert!(refused("chess_on_mars").contains("57 Atari games"));
        assert!(refused("").contains("57 Atari games"));
    }

    #[test]
    fn refuses_incomplete_names() {
        assert!(refused("gym:").contains("gym:ENV_ID"));
        assert!(refused("gym::A-v0").contains("gym:MODULE:ENV_ID"));
        assert!(refused("catch:3").contains("takes no parameter"));
        assert!(refused("deep_sea:big").contains("expected an integer"));
    }
}
