//! Words that a shell reads as they are.

/// The word as it must be written on a command line of `sh`.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_the_word_that_was_quoted() {
        assert_eq!(quoted("toolbox/my-clock_2"), "toolbox/my-clock_2");
        for word in ["", "two words", "it's", "$HOME `id` \"x\" \\", "天気", "~", "*", "a;b", "#", "!!"] {
            let echoed = Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output();
            assert_eq!(String::from_utf8(echoed.unwrap().stdout).unwrap(), word);
        }
    }
}
