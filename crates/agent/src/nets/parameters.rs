//! Named parameters in one flat f32 buffer.
//!
//! A network holds the places of its parameters, not their values, and runs with the online, target, EMA and acting
//! values alike. Every set of values is one contiguous buffer with a named view per parameter, so that the optimizer,
//! the EMA and copies are single operations over the buffer.

use std::sync::Arc;

use rand::RngExt;
use rand_distr::StandardNormal;
use tch::{Device, Kind, Tensor};

use crate::Random;
use crate::error::Result;

/// Alignment of parameters in elements, so that kernels can read them in wide words.
const ALIGNMENT: u64 = 64;

/// Initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All elements equal.
    Constant(f32),
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Uniform in ±bound.
    Uniform {
        /// Largest absolute value.
        bound: f64,
    },
}

impl Init {
    /// Uniform in ±1/√fan_in.
    pub fn fan_in_uniform(fan_in: f64) -> Self {
        Self::Uniform { bound: 1.0 / fan_in.sqrt() }
    }
}

/// Place of a parameter in a [`Layout`] and its sets of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterId(usize);

/// One parameter of a layout.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Readable name, such as `heads.policy.hidden1.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<i64>,
    init: Init,
    /// Offset in the buffer.
    pub offset: i64,
}

impl Parameter {
    /// Number of elements.
    pub fn elements(&self) -> i64 {
        self.shape.iter().product()
    }

    /// Whether weight decay applies: to matrices and convolution kernels, not to gains, biases and scalars.
    pub fn decays(&self) -> bool {
        let own_name = self.name.rsplit('.').next().unwrap_or_default();
        self.shape.len() >= 2 && own_name.starts_with("weight")
    }
}

/// Names, shapes and places of all parameters of a network.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    parameters: Vec<Parameter>,
    length: i64,
    multiplications: i64,
}

impl Layout {
    /// A scope for parameters whose names begin with `prefix`.
    pub fn scope(&mut self, prefix: &str) -> Scope<'_> {
        Scope { layout: self, prefix: prefix.to_owned() }
    }

    /// All parameters, in the order of declaration.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// A parameter by its place.
    pub fn parameter(&self, id: ParameterId) -> &Parameter {
        &self.parameters[id.0]
    }

    /// Number of elements of a flat buffer, with the gaps between parameters.
    pub fn length(&self) -> i64 {
        self.length
    }

    /// Number of elements, without the gaps between parameters.
    pub fn elements(&self) -> i64 {
        self.parameters.iter().map(Parameter::elements).sum()
    }

    /// Floating-point operations of one forward pass of one frame.
    pub fn flops(&self) -> f64 {
        2.0 * self.multiplications as f64
    }

    /// Views of every parameter in a flat buffer of this layout.
    fn views(&self, flat: &Tensor) -> Result<Vec<Tensor>> {
        let view = |p: &Parameter| flat.f_narrow(0, p.offset, p.elements())?.f_view(&p.shape[..])?.f_detach();
        Ok(self.parameters.iter().map(view).collect::<std::result::Result<_, _>>()?)
    }
}

/// A name prefix under which a network declares its parameters.
pub struct Scope<'a> {
    layout: &'a mut Layout,
    prefix: String,
}

impl Scope<'_> {
    /// A scope within this one.
    pub fn scope(&mut self, name: &str) -> Scope<'_> {
        Scope { prefix: format!("{}.{name}", self.prefix), layout: self.layout }
    }

    /// A scope within this one for a part of the observation.
    ///
    /// This scope itself if the part is alone and has no name.
    pub fn part(&mut self, name: &str) -> Scope<'_> {
        if name.is_empty() { Scope { prefix: self.prefix.clone(), layout: self.layout } } else { self.scope(name) }
    }

    /// Adds to the multiplications of one forward pass of one frame.
    pub fn count_multiplications(&mut self, count: i64) {
        self.layout.multiplications += count;
    }

    /// Adds a parameter.
    pub fn declare(&mut self, name: &str, shape: &[i64], init: Init) -> ParameterId {
        let parameter = Parameter {
            name: format!("{}.{name}", self.prefix),
            shape: shape.to_vec(),
            init,
            offset: self.layout.length,
        };
        self.layout.length += (parameter.elements() as u64).next_multiple_of(ALIGNMENT) as i64;
        self.layout.parameters.push(parameter);
        ParameterId(self.layout.parameters.len() - 1)
    }
}

/// Adds the size of a network to the error of an allocation for it.
fn out_of_memory_for(layout: &Layout, error: torch_ext::Error) -> torch_ext::Error {
    let sized = |reason| format!("{reason} for a network of {:.0} million parameters", layout.length as f64 / 1e6);
    match error {
        torch_ext::Error::OutOfMemory(reason) => torch_ext::Error::OutOfMemory(sized(reason)),
        torch_ext::Error::HostMemory(reason) => torch_ext::Error::HostMemory(sized(reason)),
        other => other,
    }
}

/// Values of all parameters of a network.
#[derive(Debug)]
pub struct ParameterSet {
    layout: Arc<Layout>,
    flat: Tensor,
    views: Vec<Tensor>,
}

impl ParameterSet {
    /// All zero.
    pub fn zeros(layout: &Arc<Layout>, device: Device) -> Result<Self> {
        let flat = Tensor::f_zeros([layout.length], (Kind::Float, device));
        let flat = flat.map_err(|error| out_of_memory_for(layout, error.into()))?;
        let views = layout.views(&flat)?;
        Ok(Self { layout: layout.clone(), flat, views })
    }

    /// Initial values, drawn parameter by parameter.
    pub fn initialised(layout: &Arc<Layout>, random: &mut Random, device: Device) -> Result<Self> {
        let (mut values, length) = (Vec::new(), layout.length as usize);
        if values.try_reserve_exact(length).is_err() {
            let reason = format!("tried to allocate {} bytes", 4 * length);
            return Err(out_of_memory_for(layout, torch_ext::Error::HostMemory(reason)).into());
        }
        values.resize(length, 0f32);
        for parameter in &layout.parameters {
            let start = parameter.offset as usize;
            for value in &mut values[start..start + parameter.elements() as usize] {
                *value = match parameter.init {
                    Init::Constant(constant) => constant,
                    Init::Normal { std } => (std * random.sample::<f64, _>(StandardNormal)) as f32,
                    Init::Uniform { bound } => (bound * (2.0 * random.random::<f64>() - 1.0)) as f32,
                };
            }
        }
        let mut set = Self::zeros(layout, device)?;
        set.flat.f_copy_(&Tensor::f_from_slice(&values)?)?;
        Ok(set)
    }

    /// A copy in its own buffer.
    pub fn duplicate(&self) -> Result<Self> {
        let mut copy = Self::zeros(&self.layout, self.flat.device())?;
        copy.copy_from(self)?;
        Ok(copy)
    }

    /// Enables gradients for the parameters.
    pub fn trainable(mut self) -> Result<Self> {
        self.views = self.views.iter().map(|v| v.f_set_requires_grad(true)).collect::<std::result::Result<_, _>>()?;
        Ok(self)
    }

    /// Names, shapes and places.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The whole buffer, including the gaps, which stay zero.
    pub fn flat(&self) -> &Tensor {
        &self.flat
    }

    /// Every parameter with its name.
    pub fn named(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.layout.parameters.iter().map(|p| p.name.as_str()).zip(&self.views)
    }

    /// Copies the values of another set of the same layout.
    pub fn copy_from(&mut self, other: &Self) -> Result<()> {
        Ok(self.flat.f_copy_(&other.flat)?)
    }

    /// Copies the values of another set if `chosen`, one bool on the device, is true.
    pub fn copy_where(&mut self, chosen: &Tensor, other: &Self) -> Result<()> {
        let values = other.flat.f_where_self(chosen, &self.flat)?;
        Ok(self.flat.f_copy_(&values)?)
    }

    /// Fills the set with the gradients of `loss` for `parameters`; zero for unused parameters.
    pub fn fill_with_gradients(&mut self, loss: &Tensor, parameters: &Self) -> Result<()> {
        let gradients = Tensor::f_run_backward(&[loss], &parameters.views, false, false)?;
        let mut pairs = Vec::with_capacity(gradients.len());
        for (view, gradient) in self.views.iter_mut().zip(&gradients) {
            if gradient.defined() {
                pairs.push((view, gradient));
            } else {
                let _ = view.f_zero_()?;
            }
        }
        Ok(torch_ext::copy_all(pairs)?)
    }

    /// √Σx² over all parameters.
    pub fn norm(&self) -> Result<Tensor> {
        Ok(self.flat.f_norm()?)
    }

    /// √Σx² over a part of the buffer: where it begins, and its length.
    pub fn norm_of(&self, (start, length): (i64, i64)) -> Result<Tensor> {
        Ok(self.flat.f_narrow(0, start, length)?.f_norm()?)
    }

    /// The first parameter that is not finite, with its first such value.
    pub fn first_non_finite(&self) -> Result<Option<(&str, f64)>> {
        for (name, view) in self.named() {
            let values = view.f_reshape([-1])?;
            let bad = values.f_isfinite()?.f_logical_not()?;
            if bad.f_any()?.f_int64_value(&[])? != 0 {
                let first = bad.f_to_kind(Kind::Int)?.f_argmax(0, false)?.f_int64_value(&[])?;
                return Ok(Some((name, values.f_double_value(&[first])?)));
            }
        }
        Ok(None)
    }

    /// The values as a forward pass uses them.
    pub fn weights(&self) -> Weights {
        let values = self.views.iter().map(Tensor::shallow_clone).collect();
        Weights { values, flat: self.flat.shallow_clone(), packed: Default::default() }
    }
}

/// Parameters as a forward pass uses them, in the places of the layout.
///
/// Tensors derived from a parameter, such as a standardised kernel, are computed once per pass, or once per refresh for
/// acting, and take the parameter's place here.
#[derive(Debug)]
pub struct Weights {
    values: Vec<Tensor>,
    /// The whole buffer that holds the parameters.
    pub flat: Tensor,
    /// Weights that fused kernels derive from many parameters, of each value network.
    pub packed: [Packed; 2],
}

/// 16-bit weights of the fused GPU kernels.
#[derive(Debug, Default)]
pub struct Packed {
    /// All of the torso.
    pub torso: Option<Tensor>,
    /// All of the LSTM.
    pub lstm: Option<Tensor>,
}

impl Weights {
    /// A parameter, or the tensor derived from it.
    pub fn get(&self, id: ParameterId) -> &Tensor {
        &self.values[id.0]
    }

    /// Replaces a parameter by a derived tensor.
    pub fn replace(&mut self, id: ParameterId, derived: Tensor) {
        self.values[id.0] = derived;
    }

    /// Copies newer values in place.
    pub fn copy_from(&mut self, newer: &Self) -> Result<()> {
        let packed = self.packed.iter().zip(&newer.packed);
        let packed = packed.flat_map(|(mine, newer)| [(&mine.torso, &newer.torso), (&mine.lstm, &newer.lstm)]);
        let packed = packed.filter_map(|(mine, newer)| Some((mine.as_ref()?, newer.as_ref()?)));
        for (mine, newer) in self.values.iter().zip(&newer.values).chain(packed) {
            overwrite(mine, newer)?;
        }
        Ok(())
    }

    /// `count` parameters of the layout from number `first` on.
    pub fn range(&self, first: usize, count: usize) -> &[Tensor] {
        &self.values[first..first + count]
    }
}

/// Copies a tensor over another, unless they share memory.
pub(super) fn overwrite(mine: &Tensor, newer: &Tensor) -> Result<()> {
    if mine.data_ptr() != newer.data_ptr() {
        mine.shallow_clone().f_copy_(newer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn layout() -> (Arc<Layout>, ParameterId, ParameterId) {
        let mut layout = Layout::default();
        let mut scope = layout.scope("a");
        let gain = scope.declare("gain", &[3], Init::Constant(2.0));
        let weight = scope.scope("b").declare("weight", &[2, 2], Init::Normal { std: 1.0 });
        (Arc::new(layout), gain, weight)
    }

    #[test]
    fn views_share_the_flat_buffer_and_start_aligned() {
        let (layout, gain, weight) = layout();
        assert_eq!(layout.elements(), 7);
        assert_eq!(layout.parameters()[1].name, "a.b.weight");
        let set = ParameterSet::initialised(&layout, &mut Random::seed_from_u64(0), Device::Cpu).unwrap();
        assert_eq!(set.flat().size(), [128]);
        assert_eq!(set.weights().get(weight).double_value(&[0, 0]), set.flat().double_value(&[64]));
        let _ = set.flat().shallow_clone().fill_(5.0);
        assert_eq!(set.weights().get(gain).double_value(&[2]), 5.0);
        assert!(layout.parameters()[1].decays() && !layout.parameters()[0].decays());
    }

    #[test]
    fn network_that_does_not_fit_is_an_error_with_its_size() {
        let mut layout = Layout::default();
        layout.scope("a").declare("weight", &[1 << 60], Init::Constant(0.0));
        let layout = Arc::new(layout);
        let random = &mut Random::seed_from_u64(0);
        for made in [ParameterSet::zeros(&layout, Device::Cpu), ParameterSet::initialised(&layout, random, Device::Cpu)]
        {
            let error = made.unwrap_err().to_string();
            assert!(error.starts_with("the host is out of memory: "), "{error}");
            assert!(error.ends_with(" for a network of 1152921504607 million parameters"), "{error}");
        }
    }

    #[test]
    fn unused_parameters_get_zero_gradients() {
        let (layout, gain, weight) = layout();
        let set = ParameterSet::initialised(&layout, &mut Random::seed_from_u64(0), Device::Cpu)
            .unwrap()
            .trainable()
            .unwrap();
        let mut gradients = ParameterSet::zeros(&layout, Device::Cpu).unwrap();
        let _ = gradients.flat().shallow_clone().fill_(9.0);
        let loss = (set.weights().get(gain) * set.weights().get(gain)).sum(Kind::Float);
        gradients.fill_with_gradients(&loss, &set).unwrap();
        let found: Vec<f32> = gradients.weights().get(gain).try_into().unwrap();
        assert_eq!(found, [4.0, 4.0, 4.0]);
        assert_eq!(gradients.weights().get(weight).abs().sum(Kind::Float).double_value(&[]), 0.0);
    }

    #[test]
    fn names_the_parameter_with_a_nan() {
        let (layout, _, weight) = layout();
        let set = ParameterSet::initialised(&layout, &mut Random::seed_from_u64(0), Device::Cpu).unwrap();
        assert!(set.first_non_finite().unwrap().is_none());
        let _ = set.weights().get(weight).view([-1]).get(2).fill_(f64::NAN);
        let (name, value) = set.first_non_finite().unwrap().unwrap();
        assert!(name == "a.b.weight" && value.is_nan());
    }
}
