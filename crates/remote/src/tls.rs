//! Certificates: given by path, or self-signed and recognised by their fingerprint.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use train::run::{FileError, write_private};

use crate::RemoteError;

/// The protocol that both ends speak.
const HTTP2: &[u8] = b"h2";

/// SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for Fingerprint {
    type Err = String;

    /// Reads 64 hexadecimal digits, with or without colons between bytes.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b':').collect();
        let invalid = || "expected a fingerprint of 64 hexadecimal digits".to_owned();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(invalid());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| invalid())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }
}

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

/// The certificate and key of the learner's end.
#[derive(Clone)]
pub struct Identity {
    pub(crate) config: Arc<ServerConfig>,
    /// SHA-256 of the certificate.
    pub fingerprint: Fingerprint,
}

impl Identity {
    /// Reads a certificate chain and its key from PEM files.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, RemoteError> {
        let unusable = |path: &Path, why: String| RemoteError::Tls(format!("{}: {why}", path.display()));
        let text = fs::read(certificate).map_err(FileError::at("read", certificate))?;
        let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| unusable(certificate, error.to_string()))?;
        let Some(first) = chain.first() else {
            return Err(unusable(certificate, "it has no certificate".to_owned()));
        };
        let fingerprint = Fingerprint::of(first);
        let text = fs::read(key).map_err(FileError::at("read", key))?;
        let secret = PrivateKeyDer::from_pem_slice(&text).map_err(|error| unusable(key, error.to_string()))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()));
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| RemoteError::Tls(error.to_string()))?;
        let config = builder.with_no_client_auth().with_single_cert(chain, secret);
        let mut config = config.map_err(|error| unusable(key, error.to_string()))?;
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(Self { config: Arc::new(config), fingerprint })
    }

    /// Reads the self-signed pair in a directory, which is created if there is none.
    pub fn read_or_create(folder: &Path) -> Result<Self, RemoteError> {
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        if !certificate.exists() || !key.exists() {
            let made = rcgen::generate_simple_self_signed(["meme".to_owned()]);
            let made = made.map_err(|error| RemoteError::Tls(format!("cannot create a certificate: {error}")))?;
            write_private(&key, &made.signing_key.serialize_pem())?;
            write_private(&certificate, &made.cert.pem())?;
        }
        Self::read(&certificate, &key)
    }
}

/// How an actor recognises its learner.
#[derive(Clone, Debug)]
pub enum Trust {
    /// By the fingerprint of its certificate.
    Fingerprint(Fingerprint),
    /// By a certificate authority, and by its name.
    Authority(Vec<u8>),
}

impl Trust {
    /// Trusts the authority whose certificate is in a PEM file.
    pub fn read(path: &Path) -> Result<Self, RemoteError> {
        let pem = fs::read(path).map_err(FileError::at("read", path))?;
        if !matches!(CertificateDer::pem_slice_iter(&pem).next(), Some(Ok(_))) {
            return Err(RemoteError::Tls(format!("{} has no certificate in PEM form", path.display())));
        }
        Ok(Self::Authority(pem))
    }

    pub(crate) fn config(&self) -> Result<ClientConfig, RemoteError> {
        let tls = |error: rustls::Error| RemoteError::Tls(error.to_string());
        let crypto = Arc::new(provider::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&crypto));
        let builder = builder.with_safe_default_protocol_versions().map_err(tls)?;
        let mut config = match self {
            Self::Fingerprint(fingerprint) => {
                let verifier = Arc::new(Pinned { fingerprint: *fingerprint, crypto });
                builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
            }
            Self::Authority(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    let certificate = certificate.map_err(|error| RemoteError::Tls(error.to_string()))?;
                    roots.add(certificate).map_err(tls)?;
                }
                builder.with_root_certificates(roots).with_no_client_auth()
            }
        };
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(config)
    }
}

/// Accepts one certificate, whatever name it carries.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    crypto: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(certificate);
        if found == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General(format!("the certificate has the fingerprint {found}, not {}", self.fingerprint)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.crypto.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.crypto.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.crypto.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_signed_pair_is_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let first = Identity::read_or_create(scratch.path()).unwrap();
        let again = Identity::read_or_create(scratch.path()).unwrap();
        assert_eq!(first.fingerprint, again.fingerprint);
        let text = first.fingerprint.to_string();
        assert_eq!(text.parse::<Fingerprint>().unwrap(), first.fingerprint);
        let with_colons: Vec<_> = text.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair)).collect();
        assert_eq!(with_colons.join(":").to_uppercase().parse::<Fingerprint>().unwrap(), first.fingerprint);
        for wrong in ["", "ab", &text[1..], &text.replace(|c: char| c.is_ascii_hexdigit(), "x")] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
        let key = scratch.path().join("key.pem");
        assert!(Identity::read(&key, &key).is_err(), "a key is not a certificate");
    }
}
