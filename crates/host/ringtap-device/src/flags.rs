// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags that set options of a device, made from the descriptions of the options.

use clap::builder::ValueHint;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};

use super::{FlagName, OptionError, OptionKey, Options, Size, kinds};

impl Args for Options {
    fn augment_args(command: Command) -> Command {
        command.args(kinds::keys().into_iter().filter_map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Options {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = Options::default();
        for key in kinds::keys() {
            let Some(FlagName { long, .. }) = key.flag else {
                continue;
            };
            let text = if key.takes_words() {
                matches.get_one::<String>(long).map(String::as_str)
            } else {
                let word = if key.value.is_empty() { "" } else { "off" };
                matches.get_flag(long).then_some(word)
            };
            if let Some(text) = text {
                // The parser of the flag has accepted it.
                let _accepted = key.set(&mut options, text);
            }
        }
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flag of an option, if it has one.
fn flag(key: &'static OptionKey) -> Option<Arg> {
    let FlagName { short, long } = key.flag?;
    let mut arg = Arg::new(long).long(long).help(help(key));
    if let Some(short) = short {
        arg = arg.short(short);
    }
    if !key.takes_words() {
        return Some(arg.action(ArgAction::SetTrue));
    }
    arg = arg
        .value_name(key.value)
        .value_parser(move |text: &str| accepted(key, text));
    if key.value == "PATH" {
        arg = arg.value_hint(ValueHint::FilePath);
    }
    if key.value.bytes().all(|byte| !byte.is_ascii_uppercase()) {
        arg = arg.add(words(key.value));
    }
    Some(arg)
}

/// Values that a shell offers for an argument: these words, between which there is a `|`.
pub fn words(all: &'static str) -> ArgValueCandidates {
    let candidates = move || all.split('|').map(CompletionCandidate::new).collect();
    ArgValueCandidates::new(candidates)
}

/// Reason why a flag refuses a value.
#[derive(Debug, thiserror::Error)]
enum FlagError {
    #[error("\"{text}\" is not a {option}: expected {}", alternatives(.words))]
    Words {
        text: String,
        option: &'static str,
        words: Vec<&'static str>,
    },
    #[error(transparent)]
    Option(#[from] OptionError),
}

fn alternatives(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}

/// The text of a value as the option takes it.
fn accepted(key: &OptionKey, text: &str) -> Result<String, FlagError> {
    let value = match key.value {
        "BYTES" => match text.parse().map_err(OptionError::Size)? {
            // As without the flag.
            Size(0) => String::new(),
            Size(bytes) => bytes.to_string(),
        },
        "PATH" => text.replace('%', "%25"),
        _ => text.to_owned(),
    };
    if value.is_empty() && !text.is_empty() {
        return Ok(value);
    }
    let set = key.set(&mut Options::default(), &value);
    set.map_err(|error| match error {
        OptionError::Words(words) => FlagError::Words {
            text: text.to_owned(),
            option: key.name,
            words,
        },
        error => error.into(),
    })?;
    Ok(value)
}

fn help(key: &OptionKey) -> String {
    let (of, meaning) = (kinds::with_key(key.name), key.meaning);
    if !key.takes_words() && !key.value.is_empty() {
        return format!("Do not {meaning} ({of})");
    }
    let mut letters = meaning.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    format!(
        "{}{} ({of}; default: {})",
        first.unwrap_or_default(),
        letters.as_str(),
        key.default
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }

    fn parsed(flags: &[&str]) -> Result<Options, clap::Error> {
        let words = ["ringtap"].iter().chain(flags);
        Ok(Flags::try_parse_from(words)?.options)
    }

    #[test]
    fn a_flag_sets_its_option() {
        let all =
            "-p -s 1kB -B 64MiB --exclusive -Q in -j adapter_unsynced --mode tc --socket /a%20b";
        let options = parsed(&all.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(options.promiscuous, Some(false));
        assert_eq!(options.snap_length, Some(1000));
        assert_eq!(options.pool, Some(Size(64 << 20)));
        assert_eq!(options.socket.as_deref(), Some("/a%20b"));
        assert!(options.exclusive && options.mode.is_some() && options.direction.is_some());
        assert_eq!(parsed(&["-s", "0"]).unwrap(), Options::default());
    }

    #[test]
    fn a_wrong_value_is_refused_with_the_words_that_are_expected() {
        for (flags, says) in [
            (
                ["--mode", "fast"],
                "\"fast\" is not a mode: expected auto, native, generic or tc",
            ),
            (
                ["-Q", "up"],
                "\"up\" is not a direction: expected in, out or inout",
            ),
            (["-j", "adapter"], "use adapter_unsynced"),
            (["-s", "300000"], "1 to 262144"),
        ] {
            let error = parsed(&flags).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
