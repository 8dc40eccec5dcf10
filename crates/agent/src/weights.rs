//! Export and import of parameters as named tensors.

use std::collections::BTreeSet;

use crate::error::{AgentError, Result, WeightsProblem};
use crate::nets::parameters::ParameterSet;
use crate::tensor_file::{Dtype, HostTensor, NamedTensors};

/// Adds a copy of every parameter of a set, with a prefix before its name.
pub fn export(tensors: &mut NamedTensors, prefix: &str, set: &ParameterSet) -> Result<()> {
    for (name, tensor) in set.named() {
        tensors.insert(format!("{prefix}{name}"), HostTensor::from_tensor(tensor)?);
    }
    Ok(())
}

/// Loads the given sets from tensors that belong to them and to nothing else.
///
/// Each set has a prefix before its names.
///
/// An error lists all missing, extra and wrongly shaped tensors, and leaves the sets unchanged.
pub fn import(tensors: &NamedTensors, sets: &mut [(&str, &mut ParameterSet)]) -> Result<()> {
    let mut extra: BTreeSet<&str> = tensors.keys().map(String::as_str).collect();
    for (prefix, set) in &*sets {
        for parameter in set.layout().parameters() {
            extra.remove(format!("{prefix}{}", parameter.name).as_str());
        }
    }
    let extra = extra.into_iter().map(|name| WeightsProblem::Extra { name: name.to_owned() }).collect();
    load(tensors, sets, extra)
}

/// Like [`import`], but the tensors may belong to other sets as well.
pub fn import_some(tensors: &NamedTensors, sets: &mut [(&str, &mut ParameterSet)]) -> Result<()> {
    load(tensors, sets, Vec::new())
}

/// Loads the tensors that fit a set and returns how the others differ.
pub fn import_fitting(tensors: &NamedTensors, prefix: &str, set: &mut ParameterSet) -> Result<Vec<WeightsProblem>> {
    let problems = differences(tensors, &[(prefix, &mut *set)]);
    let differs: BTreeSet<&str> = problems.iter().map(WeightsProblem::name).collect();
    for (name, view) in set.named() {
        let name = format!("{prefix}{name}");
        if let Some(tensor) = tensors.get(&name).filter(|_| !differs.contains(name.as_str())) {
            let tensor = tensor.tensor()?;
            tch::no_grad(|| view.shallow_clone().f_copy_(&tensor))?;
        }
    }
    Ok(problems)
}

/// Returns how the tensors differ from those of the sets, except for extra ones.
fn differences(tensors: &NamedTensors, sets: &[(&str, &mut ParameterSet)]) -> Vec<WeightsProblem> {
    let mut problems = vec![];
    for (prefix, set) in sets {
        for parameter in set.layout().parameters() {
            let name = format!("{prefix}{}", parameter.name);
            let shape: Vec<usize> = parameter.shape.iter().map(|&n| n as usize).collect();
            match tensors.get(&name) {
                None => problems.push(WeightsProblem::Missing { name }),
                Some(tensor) if tensor.dtype != Dtype::F32 || tensor.shape != shape => {
                    let expected = format!("{:?} {shape:?}", Dtype::F32);
                    problems.push(WeightsProblem::Shape { name, expected, found: tensor.describe() });
                }
                Some(_) => {}
            }
        }
    }
    problems
}

fn load(tensors: &NamedTensors, sets: &mut [(&str, &mut ParameterSet)], extra: Vec<WeightsProblem>) -> Result<()> {
    let mut problems = differences(tensors, sets);
    problems.extend(extra);
    if !problems.is_empty() {
        return Err(AgentError::Weights(problems));
    }
    for (prefix, set) in sets {
        for (name, view) in set.named() {
            if let Some(tensor) = tensors.get(&format!("{prefix}{name}")) {
                let tensor = tensor.tensor()?;
                tch::no_grad(|| view.shallow_clone().f_copy_(&tensor))?;
            }
        }
    }
    Ok(())
}
