//! The networks. Each describes its parameters and layers and runs with any set of parameter values.

pub mod action_prediction;
pub mod agent_net;
pub mod core;
pub mod features;
pub mod folded_intrinsic;
pub mod heads;
pub(crate) mod layers;
pub mod parameters;
pub mod rnd;
pub mod torso;
pub(crate) mod torso_nfnet;
pub(crate) mod torso_resnet;
