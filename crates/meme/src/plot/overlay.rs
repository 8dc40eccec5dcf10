//! Runs in the same charts: one line per run, or one per group of runs.

use anyhow::{Context, Result, bail};
use train::config;
use train::suggestion::{did_you_mean, suggest_path};

use super::curves::Curves;
use super::page::Overlay;
use crate::console;
use crate::output::count_of;
use crate::settings::{PRESET, SEED, Settings, TASK, distinguishing, label};

/// Returns one line per run, or one per group if runs are grouped by a setting. Labels name what differs.
pub fn overlays<'a>(runs: &'a [Curves], group: Option<&str>) -> Result<Vec<Overlay<'a>>> {
    match group {
        None => Ok(one_per_run(runs)),
        Some(key) => one_per_group(runs, key),
    }
}

fn one_per_run(runs: &[Curves]) -> Vec<Overlay<'_>> {
    let settings: Option<Vec<&Settings>> = runs.iter().map(|run| run.settings.as_ref()).collect();
    let labels: Vec<String> = match settings {
        Some(settings) => {
            let keys = distinguishing(settings.iter().copied());
            settings.iter().map(|settings| label(settings, &keys)).collect()
        }
        // Nothing but its name is known about a metrics file.
        None => vec![String::new(); runs.len()],
    };
    let overlay = |(number, run): (usize, &'_ Curves)| {
        let unique = labels.iter().filter(|label| **label == labels[number]).count() == 1;
        match &labels[number] {
            label if label.is_empty() => run.name.clone(),
            label if unique => label.clone(),
            label => format!("{label} ({})", run.name),
        }
    };
    let names: Vec<String> = runs.iter().enumerate().map(overlay).collect();
    runs.iter().zip(names).map(|(run, label)| Overlay { label, runs: vec![run] }).collect()
}

fn one_per_group<'a>(runs: &'a [Curves], key: &str) -> Result<Vec<Overlay<'a>>> {
    let known = || config::fields().map(|field| field.path.as_str()).chain([TASK, PRESET, SEED]);
    let mut groups: Vec<(&Settings, Vec<&Curves>)> = Vec::new();
    for run in runs {
        let settings = run.settings.as_ref();
        let settings = settings
            .with_context(|| format!("--group needs runs with their settings; {} is a metrics file", run.name))?;
        if settings.get(key).is_none() {
            let suggestion = did_you_mean(suggest_path(key, known()));
            bail!("cannot group by \"{key}\": expected preset, seed, task or a config field{suggestion}");
        }
        let belongs = |group: &Settings| match key {
            SEED => group.same_but_seed(settings),
            key => group.get(key) == settings.get(key),
        };
        match groups.iter_mut().find(|(group, _)| belongs(group)) {
            Some((_, members)) => members.push(run),
            None => groups.push((settings, vec![run])),
        }
    }
    let firsts = groups.iter().map(|(settings, _)| *settings);
    let keys: Vec<&str> = match key {
        SEED => distinguishing(firsts).into_iter().filter(|key| *key != SEED).collect(),
        key => vec![key],
    };
    let overlay = |(settings, runs): (&Settings, Vec<&'a Curves>)| {
        let count = count_of(runs.len(), "run");
        let label = match label(settings, &keys) {
            label if label.is_empty() => format!("mean of {count}"),
            label => format!("{label} ({count})"),
        };
        let others = distinguishing(runs.iter().filter_map(|run| run.settings.as_ref()));
        let others: Vec<&str> = others.into_iter().filter(|other| *other != SEED && *other != key).collect();
        if !others.is_empty() {
            console::warn(format_args!("\"{label}\" pools runs that also differ in {}", others.join(", ")));
        }
        Overlay { label, runs }
    };
    Ok(groups.into_iter().map(overlay).collect())
}
