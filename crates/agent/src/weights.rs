//! Export and import of parameters as named tensors.

use crate::error::{AgentError, Result, WeightsProblem};
use crate::nets::parameters::ParameterSet;
use crate::tensor_file::{ElementType, HostTensor, TensorFile};

/// Adds a copy of every parameter of a set, with prefixed names.
pub fn export(file: &mut TensorFile, prefix: &str, set: &ParameterSet) -> Result<()> {
    for (name, tensor) in set.named() {
        file.tensors.insert(format!("{prefix}{name}"), HostTensor::from_tensor(tensor)?);
    }
    Ok(())
}

/// Copies every parameter of the given sets from a file, with each set's prefix.
///
/// One error lists all missing, extra and wrongly shaped tensors; then nothing is copied.
pub fn import(file: &TensorFile, sets: &mut [(&str, &mut ParameterSet)]) -> Result<()> {
    let mut extra = file.names();
    let mut problems = vec![];
    for (prefix, set) in &*sets {
        for parameter in set.layout().parameters() {
            let name = format!("{prefix}{}", parameter.name);
            extra.remove(name.as_str());
            let shape: Vec<usize> = parameter.shape.iter().map(|&n| n as usize).collect();
            match file.tensors.get(&name) {
                None => problems.push(WeightsProblem::Missing { name }),
                Some(tensor) if tensor.element != ElementType::F32 || tensor.shape != shape => {
                    let expected = format!("{:?} {shape:?}", ElementType::F32);
                    problems.push(WeightsProblem::Shape { name, expected, found: tensor.describe() });
                }
                Some(_) => {}
            }
        }
    }
    let mut extra: Vec<&str> = extra.into_iter().collect();
    extra.sort_unstable();
    problems.extend(extra.into_iter().map(|name| WeightsProblem::Extra { name: name.to_owned() }));
    if !problems.is_empty() {
        return Err(AgentError::Weights(problems));
    }
    for (prefix, set) in sets {
        for (name, view) in set.named() {
            if let Some(tensor) = file.tensors.get(&format!("{prefix}{name}")) {
                let tensor = tensor.tensor()?;
                tch::no_grad(|| view.shallow_clone().f_copy_(&tensor))?;
            }
        }
    }
    Ok(())
}
