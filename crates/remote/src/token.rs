//! The secret that actors show to join a run.

use std::fmt;
use std::path::Path;
use std::{fs, io};

use ring::digest::{SHA256, digest};
use tonic::metadata::Ascii;
use tonic::metadata::MetadataValue;
use train::run::{FileError, write_private};

use crate::RemoteError;

/// Returns `N` random bytes in hexadecimal digits.
pub fn random_hex<const N: usize>() -> io::Result<String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A secret, shown as `Bearer` authorization.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Reads a token from a file, without the white space around it.
    pub fn read(path: &Path) -> Result<Self, RemoteError> {
        let text = fs::read_to_string(path).map_err(FileError::at("read", path))?;
        Self::new(text.trim()).ok_or_else(|| {
            let cause = io::Error::other("expected 16 to 200 printable ASCII characters without spaces");
            FileError::at("used as a token", path)(cause).into()
        })
    }

    /// A token of 16 to 200 printable ASCII characters without spaces.
    pub fn new(text: &str) -> Option<Self> {
        let is_valid = (16..=200).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_valid.then(|| Self(text.to_owned()))
    }

    /// Reads the token in a file, which is created with a new one if there is none. Only its owner can read it.
    pub fn read_or_create(path: &Path) -> Result<Self, RemoteError> {
        if path.exists() {
            return Self::read(path);
        }
        let text = random_hex::<24>().map_err(FileError::at("created", path))?;
        write_private(path, &text)?;
        Ok(Self(text))
    }

    /// Whether this is the header that shows the token. The time it takes says nothing about the token.
    pub(crate) fn is_shown_by(&self, header: Option<&MetadataValue<Ascii>>) -> bool {
        let shown = header.and_then(|header| header.to_str().ok()).unwrap_or_default();
        digest(&SHA256, shown.as_bytes()).as_ref() == digest(&SHA256, self.header_text().as_bytes()).as_ref()
    }

    fn header_text(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// The header that shows the token.
    pub(crate) fn header(&self) -> Option<MetadataValue<Ascii>> {
        self.header_text().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn token_is_kept_and_only_it_is_accepted() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("remote/token");
        let token = Token::read_or_create(&path).unwrap();
        assert_eq!(Token::read_or_create(&path).unwrap().0, token.0);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(token.is_shown_by(token.header().as_ref()));
        let other = Token::new("another token?").is_none() && Token::new("another-token-of-20").is_some();
        assert!(other && !token.is_shown_by(Token::new("another-token-of-20").unwrap().header().as_ref()));
        assert!(!token.is_shown_by(None));
        assert_eq!(format!("{token:?}"), "Token(..)");
        fs::write(&path, "short").unwrap();
        assert!(
            Token::read(&path)
                .unwrap_err()
                .to_string()
                .contains("expected 16 to 200 printable ASCII characters without spaces")
        );
    }
}
