//! `meme train --actors-listen`: actors on other machines beside the local ones.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use remote::tls::Identity;
use remote::{ListenOptions, Listener, RemoteError, Token};
use train::config::Config;
use train::roles::remote_actors::RemoteActors;
use train::run::host;

use crate::{actors, console, options};

/// Start of the message that tells where actors connect; `python/meme_cluster/train.py` recognises it.
const ACCEPTING: &str = "accepting actors: meme actors --connect";

/// Arguments about actors on other machines.
#[derive(Args)]
#[command(next_help_heading = "Actors on other machines")]
pub struct ListenArgs {
    /// Accept actors on other machines (`meme actors`) at this address, for example 127.0.0.1:7777 or 0.0.0.0:7777. Other
    /// addresses than loopback ones use a token and TLS
    #[arg(long, value_name = "ADDRESS:PORT")]
    actors_listen: Option<String>,
    /// Most environments of all these actors together
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = options::integer::<usize>(1, 65_536))]
    remote_environments: usize,
    /// File with the token that actors have to show [default: the variable MEME_ACTORS_TOKEN, or a new one in the run]
    #[arg(long, value_name = "PATH", requires = "actors_listen")]
    actors_token_file: Option<PathBuf>,
    /// PEM file with a certificate [default: a self-signed one in the run]
    #[arg(long, value_name = "PATH", requires = "actors_key", requires = "actors_listen")]
    actors_certificate: Option<PathBuf>,
    /// PEM file with the key of the certificate
    #[arg(long, value_name = "PATH", requires = "actors_certificate")]
    actors_key: Option<PathBuf>,
}

/// Remote actors of a run, and where they connect.
pub struct Listening {
    /// Their places.
    pub actors: Arc<RemoteActors>,
    /// Listens until it is dropped.
    _listener: Listener,
}

impl ListenArgs {
    /// Checks the arguments before there is a run.
    pub fn check(&self, config: &Config) -> Result<()> {
        match &self.actors_listen {
            Some(_) if config.run.lockstep => {
                bail!("run.lockstep is true, which is repeatable only without --actors-listen")
            }
            Some(address) => self.address(address).map(drop),
            None if config.actors.environments == 0 => {
                bail!("actors.environments is 0, so the run needs actors on other machines; add --actors-listen")
            }
            None => Ok(()),
        }
    }

    fn address(&self, text: &str) -> Result<SocketAddr> {
        let found = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        found.with_context(|| format!("invalid value \"{text}\" for --actors-listen: expected ADDRESS:PORT"))
    }

    /// Starts to listen, if requested, and prints how actors connect.
    ///
    /// Token and certificate are kept in the run's folder.
    pub fn start(&self, run: &str, folder: &Path) -> Result<Option<Listening>> {
        let Some(text) = &self.actors_listen else { return Ok(None) };
        let address = self.address(text)?;
        let keep = folder.join("remote");
        let mut connect = Vec::new();
        let is_open = !address.ip().is_loopback();
        let token = match actors::token(self.actors_token_file.as_ref())? {
            None if is_open => {
                let path = keep.join("token");
                connect.push(format!("--token-file {}", path.display()));
                Some(Token::read_or_create(&path)?)
            }
            given => given,
        };
        let identity = match (&self.actors_certificate, &self.actors_key) {
            (Some(certificate), Some(key)) => Some(Identity::read(certificate, key)?),
            _ if is_open => Some(Identity::read_or_create(&keep)?),
            _ => None,
        };
        if let Some(identity) = &identity {
            connect.push(format!("--fingerprint {}", identity.fingerprint));
        }
        let actors = Arc::new(RemoteActors::new(self.remote_environments));
        let listening = ListenOptions { address, token, identity, run: run.to_owned() };
        let listener = Listener::start(listening, Arc::clone(&actors)).map_err(|error| match error {
            RemoteError::Listen { .. } => anyhow!("{error}; choose another address with --actors-listen"),
            error => error.into(),
        })?;
        let address = match listener.address() {
            address if address.ip().is_unspecified() => format!("{}:{}", host(), address.port()),
            address => address.to_string(),
        };
        console::message(format!("{ACCEPTING} {address} {}", connect.join(" ")).trim_end());
        Ok(Some(Listening { actors, _listener: listener }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meme_cluster_recognises_the_message() {
        assert!(include_str!("../../../python/meme_cluster/train.py").contains(ACCEPTING));
    }
}
