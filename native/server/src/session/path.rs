//! Which collection a stream writes to.

use arrow_flight::FlightDescriptor;
use arrow_flight::flight_descriptor::DescriptorType;
use headrace_core::Quoted;

use crate::refusal::Refusal;

const STREAMING_WRITE: &str = "streaming_write";
const DEFAULT: &str = "default";
const LONGEST_NAME: usize = 127;

pub fn written_collection(descriptor: Option<&FlightDescriptor>) -> Result<String, Refusal> {
    let is_path =
        |of: &&FlightDescriptor| of.r#type == DescriptorType::Path as i32 && !of.path.is_empty();
    let Some(descriptor) = descriptor.filter(is_path) else {
        return Err(Refusal::config("the descriptor is not a path"));
    };
    let path = descriptor.path.join("/");
    let (head, rest) = path
        .split_once('/')
        .map_or((&*path, DEFAULT), |(head, rest)| (head, rest));
    if head != STREAMING_WRITE || rest.contains('/') {
        return Err(Refusal::config(format!(
            "the descriptor's path is {STREAMING_WRITE} or {STREAMING_WRITE}/COLLECTION, not {}",
            Quoted(&path)
        )));
    }
    check_name(rest)?;
    Ok(rest.to_owned())
}

/// Accepts names that every catalog and every shell takes without quoting.
fn check_name(name: &str) -> Result<(), Refusal> {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let begins_well = name.bytes().next().is_some_and(is_letter);
    if begins_well
        && name.len() <= LONGEST_NAME
        && name
            .bytes()
            .all(|byte| is_letter(byte) || byte.is_ascii_digit())
    {
        return Ok(());
    }
    Err(Refusal::config(format!(
        "{} is not a name of a collection: letters, digits and underscores, at most 127, and no digit first",
        Quoted(name)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(path: &[&str]) -> Result<String, String> {
        let descriptor =
            FlightDescriptor::new_path(path.iter().map(|step| (*step).to_owned()).collect());
        written_collection(Some(&descriptor)).map_err(|refusal| refusal.message)
    }

    #[test]
    fn the_collection_is_in_the_path() {
        assert_eq!(written(&["streaming_write"]), Ok("default".to_owned()));
        assert_eq!(
            written(&["streaming_write/orders"]),
            Ok("orders".to_owned())
        );
        assert_eq!(
            written(&["streaming_write", "orders"]),
            Ok("orders".to_owned())
        );
        let longest = "a".repeat(127);
        assert_eq!(written(&["streaming_write", &longest]), Ok(longest));
    }

    #[test]
    fn a_path_that_names_no_collection_is_refused() {
        for (path, message) in [
            (
                &["elsewhere"][..],
                "streaming_write or streaming_write/COLLECTION, not 'elsewhere'",
            ),
            (&["streaming_write", "a", "b"], "not 'streaming_write/a/b'"),
            (
                &["streaming_write/a b"],
                "'a b' is not a name of a collection",
            ),
            (&["streaming_write/"], "'' is not a name of a collection"),
            (&["streaming_write", "1a"], "'1a' is not a name"),
            (
                &["streaming_write/../../etc"],
                "not 'streaming_write/../../etc'",
            ),
            (&[""], "not ''"),
            (&[], "the descriptor is not a path"),
        ] {
            let refusal = written(path).unwrap_err();
            assert!(refusal.contains(message), "{refusal}");
        }
        assert!(written(&["streaming_write", &"a".repeat(128)]).is_err());
        assert!(written_collection(None).is_err());
        let command = FlightDescriptor::new_cmd("streaming_write");
        assert!(written_collection(Some(&command)).is_err());
    }
}
