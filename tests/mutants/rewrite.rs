//! Writes a source text in which each of its changes can be chosen at run time.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::find::Edit;

/// The module that chooses, as it stands in the changed source.
pub(crate) const SWITCH: &str = include_str!("switch.rs");

/// What a part of the written text is for.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) range: Range<usize>,
    pub(crate) numbers: Vec<u32>,
    /// Whether it has one change alone, and nothing of the source as it was.
    pub(crate) is_changed: bool,
}

/// A written file.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) text: String,
    /// Inner parts stand behind those around them.
    pub(crate) parts: Vec<Part>,
}

/// Writes the text with the edits of which some change is not among those `dropped`.
pub(crate) fn rewrite(text: &str, edits: &[Edit], dropped: &BTreeSet<u32>) -> Written {
    let mut writer = Writer {
        text,
        edits,
        next: 0,
        dropped,
        written: Written::default(),
    };
    writer.copy(0..text.len());
    writer.written
}

struct Writer<'a> {
    text: &'a str,
    edits: &'a [Edit],
    next: usize,
    dropped: &'a BTreeSet<u32>,
    written: Written,
}

impl Writer<'_> {
    /// Copies a part of the source, with the edits within.
    fn copy(&mut self, range: Range<usize>) {
        let mut at = range.start;
        while let Some(edit) = self
            .edits
            .get(self.next)
            .filter(|edit| edit.range().start < range.end)
        {
            self.next += 1;
            let place = edit.range();
            self.push(&self.text[at..place.start]);
            at = place.end;
            self.edit(edit);
        }
        self.push(&self.text[at..range.end]);
    }

    fn edit(&mut self, edit: &Edit) {
        let is_kept = |number: &u32| !self.dropped.contains(number);
        let kept = |all: &[(u32, String)]| -> Vec<(u32, String)> {
            let kept = all.iter().filter(|(number, _)| is_kept(number));
            kept.cloned().collect()
        };
        match edit {
            Edit::Body { values, .. } => {
                for (number, value) in kept(values) {
                    let text =
                        format!(" if crate::switch::changed({number}) {{ return {value}; }} ");
                    self.part(vec![number], true, |it| it.push(&text));
                }
            }
            Edit::Choice { range, others } => {
                let others = kept(others);
                let Some(((last, last_text), before)) = others.split_last() else {
                    return self.copy(range.clone());
                };
                let numbers: Vec<_> = others.iter().map(|(number, _)| *number).collect();
                self.part(numbers.clone(), false, |it| {
                    // The source as it was comes first, so that its type is the right one.
                    it.push(&format!("(if crate::switch::none_of(&{numbers:?}) {{ "));
                    it.copy(range.clone());
                    for (number, text) in before {
                        it.push(&format!(" }} else if crate::switch::changed({number}) {{ "));
                        it.part(vec![*number], true, |it| it.push(text));
                    }
                    it.push(" } else { ");
                    it.part(vec![*last], true, |it| it.push(last_text));
                    it.push(" })");
                });
            }
            Edit::Arm { number, .. } if is_kept(number) => {
                let text = format!(" if !crate::switch::changed({number})");
                self.part(vec![*number], false, |it| it.push(&text));
            }
            Edit::Guard { range, yes, no } if is_kept(yes) && is_kept(no) => {
                self.part(vec![*yes, *no], false, |it| {
                    it.push(&format!(
                        "crate::switch::changed({yes}) || !crate::switch::changed({no}) && ("
                    ));
                    it.copy(range.clone());
                    it.push(")");
                });
            }
            Edit::Arm { .. } => {}
            Edit::Guard { range, .. } => self.copy(range.clone()),
        }
    }

    /// Notes that all that `write` writes is for these changes.
    fn part(&mut self, numbers: Vec<u32>, is_changed: bool, write: impl FnOnce(&mut Self)) {
        let index = self.written.parts.len();
        let start = self.written.text.len();
        self.written.parts.push(Part {
            range: start..start,
            numbers,
            is_changed,
        });
        write(self);
        self.written.parts[index].range.end = self.written.text.len();
    }

    fn push(&mut self, text: &str) {
        self.written.text.push_str(text);
    }
}

impl Written {
    /// The changes that an error at this place speaks of, and whether only they can be meant: else the way in which they
    /// are written does not compile.
    pub(crate) fn blamed(&self, place: &Range<usize>) -> Option<(&[u32], bool)> {
        let around = |part: &&Part| part.range.start <= place.start && place.end <= part.range.end;
        let innermost = self.parts.iter().rev().find(around)?;
        Some((&innermost.numbers, innermost.is_changed))
    }
}
