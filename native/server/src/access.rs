//! Decides who may write, by bearer tokens. Only their digests are known here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use headrace_core::Quoted;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use crate::control::{Control, Question, ask};
use crate::refusal::Refusal;

const LOOK_AFTER: Duration = Duration::from_secs(1);
const MOST_TOKEN_BYTES: usize = 4096;
const HOW: &str = "send the header 'authorization: Bearer TOKEN'";
const ALL: &str = "*";

/// The owner of a token, and what the token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub name: String,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// Collections that may be written; "*" for all.
    pub write: Vec<String>,
    pub is_admin: bool,
    /// Everything else that the token allows, which is not checked here. If it changes, the token is another one.
    pub other_roles: Vec<String>,
}

/// The token of a caller; `None` if no tokens are configured.
pub type Identity = Option<Arc<Token>>;

pub struct Access {
    control: Arc<dyn Control>,
    /// `None`: everybody may do everything.
    tokens: Mutex<Option<Vec<Arc<Token>>>>,
    looked_at: Mutex<Instant>,
    refused: AtomicU64,
}

impl Access {
    pub fn new(control: Arc<dyn Control>, tokens: Option<Vec<Token>>) -> Self {
        Self {
            control,
            tokens: Mutex::new(tokens.map(|tokens| tokens.into_iter().map(Arc::new).collect())),
            looked_at: Mutex::new(Instant::now()),
            refused: AtomicU64::new(0),
        }
    }

    /// Calls without a token that is known.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Whose call has these headers.
    pub async fn identify(&self, headers: &HeaderMap) -> Result<Identity, Refusal> {
        if self.tokens.lock().is_none() {
            return Ok(None);
        }
        let found = match bearer_token(headers) {
            Ok(token) => {
                self.look().await;
                self.find(token)
            }
            Err(refusal) => Err(refusal),
        };
        found.map(Some).inspect_err(|_| {
            self.refused.fetch_add(1, Relaxed);
        })
    }

    /// Whether a token that was good when a call began still is, with the same roles.
    pub async fn is_current(&self, identity: &Identity) -> bool {
        let Some(token) = identity else { return true };
        self.look().await;
        self.tokens
            .lock()
            .as_ref()
            .is_none_or(|tokens| tokens.contains(token))
    }

    fn find(&self, token: &[u8]) -> Result<Arc<Token>, Refusal> {
        let digest = digest(&SHA256, token);
        let tokens = self.tokens.lock();
        let mut found = None;
        // To the end, and digests only, so that the time says nothing.
        for known in tokens.iter().flatten() {
            if known.digest == digest.as_ref() {
                found = Some(Arc::clone(known));
            }
        }
        found.ok_or_else(|| {
            Refusal::unauthenticated(
                "the token is not known here: ask who runs the server for another",
            )
        })
    }

    /// Asks for changed tokens, at most once a second; meanwhile all others use the previous ones.
    async fn look(&self) {
        {
            let mut looked_at = self.looked_at.lock();
            if looked_at.elapsed() < LOOK_AFTER {
                return;
            }
            *looked_at = Instant::now();
        }
        if let Ok(Some(tokens)) = ask(&*self.control, |answer| Question::Tokens { answer }).await {
            *self.tokens.lock() = Some(tokens.into_iter().map(Arc::new).collect());
        }
    }
}

/// Refuses an identity that may not write a collection.
pub fn require_write(identity: &Identity, collection: &str) -> Result<(), Refusal> {
    let Some(token) = identity else { return Ok(()) };
    let is_named = |name: &String| name == collection || name == ALL;
    if token.is_admin || token.write.iter().any(is_named) {
        return Ok(());
    }
    Err(Refusal::unauthorized(format!(
        "token {} may not write collection {2}: it lacks {2} in its role {1}",
        Quoted(&token.name),
        Quoted("write"),
        Quoted(collection)
    )))
}

fn bearer_token(headers: &HeaderMap) -> Result<&[u8], Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Err(Refusal::unauthenticated(format!(
            "this server wants a token: {HOW}"
        )));
    };
    let others = values.count();
    if others > 0 {
        return Err(Refusal::unauthenticated(format!(
            "there are {} authorization headers: send one",
            others + 1
        )));
    }
    let value = value.as_bytes().trim_ascii();
    let space = value
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(value.len());
    let (scheme, token) = value.split_at(space);
    let token = token.trim_ascii();
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer");
    if !is_bearer || token.is_empty() || token.len() > MOST_TOKEN_BYTES {
        return Err(Refusal::unauthenticated(format!(
            "the authorization header holds no bearer token: {HOW}"
        )));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    struct NoNews;

    impl Control for NoNews {
        fn ask(&self, _: Question) {}
    }

    fn token(name: &str, secret: &str, write: &[&str]) -> Token {
        Token {
            name: name.to_owned(),
            digest: digest(&SHA256, secret.as_bytes())
                .as_ref()
                .try_into()
                .unwrap(),
            write: write.iter().map(|name| (*name).to_owned()).collect(),
            is_admin: false,
            other_roles: Vec::new(),
        }
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values
            .iter()
            .map(|value| (AUTHORIZATION, value.parse().unwrap()))
            .collect()
    }

    async fn refusal(access: &Access, values: &[&str]) -> String {
        access.identify(&headers(values)).await.unwrap_err().message
    }

    #[tokio::test]
    async fn a_token_is_found_by_its_digest() {
        let access = Access::new(
            Arc::new(NoNews),
            Some(vec![token("till", "secret", &["orders"])]),
        );
        for value in ["Bearer secret", "bearer   secret ", "BEARER secret"] {
            let identity = access.identify(&headers(&[value])).await.unwrap();
            assert_eq!(identity.unwrap().name, "till");
        }
        assert!(
            refusal(&access, &[])
                .await
                .starts_with("this server wants a token")
        );
        assert!(
            refusal(&access, &["Bearer a", "Bearer b"])
                .await
                .starts_with("there are 2 authorization")
        );
        for value in ["secret", "Basic secret", "Bearer ", "Bearer"] {
            assert!(
                refusal(&access, &[value])
                    .await
                    .contains("holds no bearer token")
            );
        }
        assert!(
            refusal(&access, &["Bearer other"])
                .await
                .contains("is not known here")
        );
        assert_eq!(access.refused(), 7);
    }

    #[tokio::test]
    async fn nobody_needs_a_token_where_there_are_none() {
        let access = Access::new(Arc::new(NoNews), None);
        let identity = access.identify(&headers(&[])).await.unwrap();
        assert!(access.is_current(&identity).await);
        assert!(require_write(&identity, "anything").is_ok());
    }

    #[test]
    fn a_role_names_what_may_be_written() {
        let identity = Some(Arc::new(token("till", "secret", &["orders"])));
        assert!(require_write(&identity, "orders").is_ok());
        assert_eq!(
            require_write(&identity, "returns").unwrap_err().message,
            "token 'till' may not write collection 'returns': it lacks 'returns' in its role 'write'"
        );
        assert!(require_write(&Some(Arc::new(token("all", "secret", &["*"]))), "x").is_ok());
    }

    #[derive(Default)]
    struct Withdrawn(AtomicBool);

    impl Control for Withdrawn {
        fn ask(&self, question: Question) {
            if let Question::Tokens { answer } = question {
                let tokens = self.0.load(Relaxed).then(Vec::new);
                answer.send(tokens).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_token_that_is_withdrawn_is_not_current() {
        let control = Arc::new(Withdrawn::default());
        let tokens = Some(vec![token("till", "secret", &["*"])]);
        let access = Access::new(Arc::clone(&control) as _, tokens);
        let identity = access.identify(&headers(&["Bearer secret"])).await.unwrap();
        control.0.store(true, Relaxed);
        *access.looked_at.lock() = Instant::now() - LOOK_AFTER;
        assert!(!access.is_current(&identity).await);
    }
}
