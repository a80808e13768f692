// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules for one Rust file.

const SPDX: &str = "// SPDX-License-Identifier: MIT OR Apache-2.0";

/// Tests beside the code move to a file of their own above this.
const LINES_OF_INNER_TESTS: usize = 150;

/// Whether a file may hold `unsafe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsafe {
    Forbidden,
    /// One of the few modules that hold it, and must.
    Listed,
    /// A test.
    Free,
}

pub(super) fn faults(text: &str, unsafety: Unsafe) -> Vec<String> {
    let mut faults = Vec::new();
    let mut lines = text.lines();
    if lines.next() != Some(SPDX) {
        faults.push(format!("the first line must be `{SPDX}`"));
    }
    let documentation: Vec<_> = lines
        .take_while(|line| line.starts_with("//!"))
        .map(|line| line.trim_start_matches("//!").trim())
        .take_while(|line| !line.is_empty())
        .collect();
    if !documentation.join(" ").ends_with(['.', ':']) {
        faults.push("the second line must start the file's sentence with `//!`".to_owned());
    }
    match (has_unsafe(text), unsafety) {
        (true, Unsafe::Forbidden) => {
            faults.push("unsafe code, but not on the list of unsafe modules".to_owned())
        }
        (false, Unsafe::Listed) => {
            faults.push("on the list of unsafe modules, but has none".to_owned())
        }
        _ => {}
    }
    let inner = lines_of_inner_tests(text);
    if inner > LINES_OF_INNER_TESTS {
        faults.push(format!(
            "{inner} lines of tests: above {LINES_OF_INNER_TESTS} they move to NAME/tests.rs"
        ));
    }
    faults
}

/// Whether the word `unsafe` stands in code: not in comments, not in strings.
fn has_unsafe(text: &str) -> bool {
    text.lines().map(code_of).any(|code| {
        code.split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == "unsafe")
    })
}

/// The line without its comment and without the insides of its strings.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    let (mut quoted, mut escaped) = (false, false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        if escaped {
            escaped = false;
        } else if quoted {
            escaped = letter == '\\';
            quoted = letter != '"';
        } else if letter == '"' {
            quoted = true;
        } else if letter == '/' && letters.peek() == Some(&'/') {
            break;
        } else {
            code.push(letter);
        }
    }
    code
}

fn lines_of_inner_tests(text: &str) -> usize {
    text.lines()
        .skip_while(|line| *line != "mod tests {")
        .take_while(|line| *line != "}")
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "// SPDX-License-Identifier: MIT OR Apache-2.0\n//! One sentence.\n";

    fn count(rest: &str, unsafety: Unsafe) -> usize {
        faults(&format!("{HEAD}{rest}"), unsafety).len()
    }

    #[test]
    fn a_file_without_licence_or_sentence_is_a_fault() {
        assert_eq!(faults("fn main() {}\n", Unsafe::Forbidden).len(), 2);
        assert_eq!(
            faults(&format!("{SPDX}\nfn main() {{}}\n"), Unsafe::Forbidden).len(),
            1
        );
        assert_eq!(
            faults(&format!("{SPDX}\n//! no full stop\n"), Unsafe::Forbidden).len(),
            1
        );
        assert_eq!(
            faults(
                &format!("{SPDX}\n//! Over two\n//! lines.\n"),
                Unsafe::Forbidden
            )
            .len(),
            0
        );
    }

    #[test]
    fn unsafe_code_outside_the_list_is_a_fault() {
        assert_eq!(count("fn f() { unsafe { g() } }\n", Unsafe::Forbidden), 1);
        assert_eq!(count("unsafe impl Send for X {}\n", Unsafe::Forbidden), 1);
        assert_eq!(count("fn f() { unsafe { g() } }\n", Unsafe::Listed), 0);
    }

    #[test]
    fn a_word_in_a_comment_or_a_string_is_not_unsafe_code() {
        assert_eq!(count("// unsafe is a word\n", Unsafe::Forbidden), 0);
        assert_eq!(
            count("const X: &str = \"a \\\" unsafe\";\n", Unsafe::Forbidden),
            0
        );
        assert_eq!(count("#![forbid(unsafe_code)]\n", Unsafe::Forbidden), 0);
    }

    #[test]
    fn a_test_may_hold_unsafe_code_and_need_not() {
        assert_eq!(count("unsafe impl Send for X {}\n", Unsafe::Free), 0);
        assert_eq!(count("fn f() {}\n", Unsafe::Free), 0);
    }

    #[test]
    fn an_entry_of_the_list_that_holds_no_unsafe_code_is_a_fault() {
        assert_eq!(count("fn f() {}\n", Unsafe::Listed), 1);
    }

    #[test]
    fn long_tests_beside_the_code_are_a_fault() {
        let tests = |lines| format!("mod tests {{\n{}}}\n", "    // line\n".repeat(lines));
        assert_eq!(count(&tests(149), Unsafe::Forbidden), 0);
        assert_eq!(count(&tests(150), Unsafe::Forbidden), 1);
    }
}
