//! The roles of a run: actors, inference, learner, bandit and evaluators.
//!
//! Also what they share: events, published parameters and run control.

pub mod actor;
pub mod actor_env;
pub(crate) mod actor_thread;
pub mod bandit;
pub(crate) mod batch_prefetch;
pub mod demonstration;
pub mod evaluation;
pub mod evaluation_rounds;
pub mod events;
pub mod inference;
pub(crate) mod inference_server;
pub mod learner_loop;
pub mod messages;
pub(crate) mod prefetch_thread;
pub mod published_parameters;
pub mod remote_actor_proxy;
pub mod remote_actors;
pub(crate) mod run_control;
pub mod step_writer;
pub mod thread_role;
pub mod timesheet;
pub mod trained_agent;
pub mod training_agent;
