//! The networks, one file each. Every one is a description that runs with any set of its parameters.

pub mod action_prediction;
pub mod agent_net;
pub mod core;
pub(crate) mod encoder;
pub mod features;
pub mod heads;
pub mod intrinsic_form;
pub(crate) mod layers;
pub mod parameters;
pub mod rnd;
pub mod torso;
pub(crate) mod torso_dqn;
pub(crate) mod torso_nfnet;
pub(crate) mod torso_resnet;
