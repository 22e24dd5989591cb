//! Finds the changes of a file: those that cargo-mutants makes, and the few among them that cannot be chosen at run time.

use std::ops::Range;

use proc_macro2::Span;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, BinOp, Block, Expr, ExprBinary, ExprBlock, ExprConst, ExprMatch, ExprRepeat,
    ExprStruct, ExprUnary, Field, FieldValue, ImplItemConst, ImplItemFn, Item, ItemConst, ItemEnum,
    ItemFn, ItemImpl, ItemMod, ItemStatic, ItemTrait, Local, Member, Meta, Pat, PatGuard, Safety,
    Signature, Token, TraitItemConst, TraitItemFn, Type, UnOp,
};

use crate::values;

/// One change of the source.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The value of the variable that makes it; from 1 on.
    pub(crate) number: u32,
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) what: String,
}

impl Change {
    /// File, line, column, and what is changed.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}:{}: {}", self.file, self.line, self.column, self.what)
    }

    /// The same without the place in the file, which moves.
    pub(crate) fn lasting_name(&self) -> String {
        format!("{}: {}", self.file, self.what)
    }
}

/// A place of the text where changes are chosen.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Behind the brace that opens a function: each change returns its value.
    Body {
        at: usize,
        values: Vec<(u32, String)>,
    },
    /// An expression, and what stands there with each change.
    Choice {
        range: Range<usize>,
        others: Vec<(u32, String)>,
    },
    /// Behind the pattern of an arm without a guard, which is skipped with the change.
    Arm { at: usize, number: u32 },
    /// A guard that is true with one change, false with the other.
    Guard {
        range: Range<usize>,
        yes: u32,
        no: u32,
    },
}

impl Edit {
    pub(crate) fn range(&self) -> Range<usize> {
        match self {
            Edit::Body { at, .. } | Edit::Arm { at, .. } => *at..*at,
            Edit::Choice { range, .. } | Edit::Guard { range, .. } => range.clone(),
        }
    }
}

/// What a file has.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) changes: Vec<Change>,
    /// The edits in the order of the text, outer ones first.
    pub(crate) edits: Vec<Edit>,
    /// Names of changes that cannot be chosen at run time, with the reason.
    pub(crate) left_out: Vec<(String, &'static str)>,
    /// How many could not compile, which their place says.
    pub(crate) unviable: usize,
}

const CONSTANT: &str = "a constant is worked out by the compiler";

/// Finds the changes of one file, numbered from `first` on.
///
/// # Errors
///
/// The file is no Rust.
pub(crate) fn changes(file: &str, text: &str, first: u32) -> syn::Result<Found> {
    let tree = syn::parse_file(text)?;
    let mut finder = Finder {
        file,
        text,
        next: first,
        names: Vec::new(),
        functions: 0,
        is_constant: false,
        found: Found::default(),
    };
    if tree.attrs.iter().all(is_compiled) {
        finder.visit_file(&tree);
    }
    let mut found = finder.found;
    // A stable order: of edits of one range, the outer one was found first.
    found.edits.sort_by_key(|edit| {
        let range = edit.range();
        (range.start, !range.is_empty(), usize::MAX - range.end)
    });
    Ok(found)
}

/// Whether what has this attribute is there in the library as it is tested: with all features, without test code.
pub(crate) fn is_compiled(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return false;
    }
    let Meta::List(list) = &attribute.meta else {
        return true;
    };
    !list.path.is_ident("cfg")
        || list
            .parse_args::<Meta>()
            .is_ok_and(|condition| holds(&condition))
}

fn holds(condition: &Meta) -> bool {
    let is = |name: &str| condition.path().is_ident(name);
    match condition {
        Meta::Path(_) => is("unix") || is("debug_assertions"),
        Meta::NameValue(pair) => {
            let Expr::Lit(value) = &pair.value else {
                return false;
            };
            let syn::Lit::Str(value) = &value.lit else {
                return false;
            };
            is("feature") || is("target_os") && value.value() == std::env::consts::OS
        }
        Meta::List(list) => {
            let inner = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let Ok(inner) = inner else {
                return false;
            };
            match () {
                () if is("not") => !inner.iter().any(holds),
                () if is("all") => inner.iter().all(holds),
                () => inner.iter().any(holds),
            }
        }
    }
}

struct Finder<'a> {
    file: &'a str,
    text: &'a str,
    next: u32,
    /// Types, modules and functions around the place.
    names: Vec<String>,
    /// How many of them are functions.
    functions: usize,
    is_constant: bool,
    found: Found,
}

impl Finder<'_> {
    fn source(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    /// The words of a part of the source, on one line.
    fn words(&self, span: Span) -> String {
        let words: Vec<_> = self.source(span).split_whitespace().collect();
        words.join(" ")
    }

    fn name(&self, what: String) -> String {
        match self.functions {
            0 => what,
            _ => format!("{what} in {}", self.names.join("::")),
        }
    }

    /// Numbers a change at this place, unless it can only be left out.
    fn change(&mut self, at: Span, what: String) -> Option<u32> {
        if self.is_constant {
            self.leave_out(at, what, CONSTANT);
            return None;
        }
        let (number, place) = (self.next, at.start());
        self.next += 1;
        self.found.changes.push(Change {
            number,
            file: self.file.to_owned(),
            line: place.line,
            column: place.column + 1,
            what,
        });
        Some(number)
    }

    fn leave_out(&mut self, at: Span, what: String, reason: &'static str) {
        let place = at.start();
        let name = format!("{}:{}:{}: {what}", self.file, place.line, place.column + 1);
        self.found.left_out.push((name, reason));
    }

    fn choice(&mut self, range: Range<usize>, others: Vec<(u32, String)>) {
        if !others.is_empty() {
            self.found.edits.push(Edit::Choice { range, others });
        }
    }

    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.names.push(name);
        visit(self);
        self.names.pop();
    }

    fn constant(&mut self, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.is_constant, true);
        visit(self);
        self.is_constant = before;
    }

    fn function(&mut self, signature: &Signature, block: &Block, visit: impl FnOnce(&mut Self)) {
        let Some(first) = block
            .stmts
            .first()
            .filter(|_| !matches!(signature.safety, Safety::Unsafe(_)))
        else {
            return;
        };
        let before = (self.is_constant, self.functions);
        self.is_constant |= signature.constness.is_some();
        self.names.push(signature.ident.to_string());
        self.functions += 1;
        let body = block.brace_token.span.join();
        let at = body.byte_range().start + 1;
        let inside = self.text[at..body.byte_range().end - 1].trim().to_owned();
        let mut function = self.names.join("::");
        if let syn::ReturnType::Type(_, result) = &signature.output {
            function = format!("{function} -> {}", self.words(result.span()));
        }
        match values::of_return(&signature.output, self.text) {
            Err(reason) => {
                self.leave_out(
                    first.span(),
                    format!("replace {function} with a value"),
                    reason,
                );
            }
            Ok(values) => {
                let mut chosen = Vec::new();
                for value in values.into_iter().filter(|value| *value != inside) {
                    let number =
                        self.change(first.span(), format!("replace {function} with {value}"));
                    chosen.extend(number.map(|number| (number, value)));
                }
                if !chosen.is_empty() {
                    self.found.edits.push(Edit::Body { at, values: chosen });
                }
            }
        }
        visit(self);
        self.names.pop();
        (self.is_constant, self.functions) = before;
    }
}

/// What else could stand in the place of an operator.
fn others(operator: BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Lt(_) => &["==", ">", "<="],
        BinOp::Gt(_) => &["==", "<", ">="],
        BinOp::Le(_) => &[">"],
        BinOp::Ge(_) => &["<"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) | BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) | BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::DivAssign(_) => &["%=", "*="],
        BinOp::RemAssign(_) => &["/=", "+="],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        _ => &[],
    }
}

/// Whether an expression is a part of a chain with `let`, of which only `&&` can be made.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(it) => {
            matches!(it.op, BinOp::And(_)) && (has_let(&it.left) || has_let(&it.right))
        }
        _ => false,
    }
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    // Neither types nor patterns nor attributes have code that runs.
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_field(&mut self, _: &'ast Field) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}

    fn visit_item(&mut self, item: &'ast Item) {
        if attributes_of(item).iter().all(is_compiled) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.constant(|it| visit::visit_item_const(it, item));
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.constant(|it| visit::visit_item_static(it, item));
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.constant(|it| visit::visit_item_enum(it, item));
    }

    fn visit_impl_item_const(&mut self, item: &'ast ImplItemConst) {
        self.constant(|it| visit::visit_impl_item_const(it, item));
    }

    fn visit_trait_item_const(&mut self, item: &'ast TraitItemConst) {
        self.constant(|it| visit::visit_trait_item_const(it, item));
    }

    fn visit_expr_const(&mut self, block: &'ast ExprConst) {
        self.constant(|it| visit::visit_expr_const(it, block));
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast ExprRepeat) {
        self.visit_expr(&repeat.expr);
        self.constant(|it| it.visit_expr(&repeat.len));
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.within(item.ident.to_string(), |it| visit::visit_item_mod(it, item));
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.within(item.ident.to_string(), |it| {
            visit::visit_item_trait(it, item)
        });
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let of = self.words(item.self_ty.span());
        let name = match &item.trait_ {
            // A default has no other value that is right for its type.
            Some((path, _))
                if path
                    .segments
                    .last()
                    .is_some_and(|last| last.ident == "Default") =>
            {
                return;
            }
            Some((path, _)) => format!("<impl {} for {of}>", self.words(path.span())),
            None => of,
        };
        self.within(name, |it| visit::visit_item_impl(it, item));
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block, |it| it.visit_block(&item.block));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if item.attrs.iter().all(is_compiled) && item.sig.ident != "new" {
            self.function(&item.sig, &item.block, |it| it.visit_block(&item.block));
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = item
            .default
            .as_ref()
            .filter(|_| item.attrs.iter().all(is_compiled))
        {
            self.function(&item.sig, block, |it| it.visit_block(block));
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if local.attrs.iter().all(is_compiled) {
            visit::visit_local(self, local);
        }
    }

    fn visit_expr_block(&mut self, block: &'ast ExprBlock) {
        if block.attrs.iter().all(is_compiled) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_field_value(&mut self, field: &'ast FieldValue) {
        if field.attrs.iter().all(is_compiled) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        let operator = self.words(binary.op.span());
        let others = others(binary.op);
        if matches!(binary.op, BinOp::And(_)) && (has_let(&binary.left) || has_let(&binary.right)) {
            self.found.unviable += others.len();
        } else {
            let mut chosen = Vec::new();
            let (left, right) = (binary.left.span(), binary.right.span());
            for other in others {
                let what = self.name(format!("replace {operator} with {other}"));
                let number = self.change(binary.op.span(), what);
                // Parentheses keep `a + b * c` together where `*` takes the place of `+`.
                let text = match assigns(binary.op) {
                    true => format!("{} {other} {}", self.source(left), self.source(right)),
                    false => self.replaced(binary, other),
                };
                chosen.extend(number.map(|number| (number, text)));
            }
            self.choice(left.byte_range().start..right.byte_range().end, chosen);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        if matches!(unary.op, UnOp::Not(_) | UnOp::Neg(_)) {
            let what = self.name(format!("delete {}", self.words(unary.op.span())));
            let number = self.change(unary.op.span(), what);
            let text = self.source(unary.expr.span()).to_owned();
            let range = unary.op.span().byte_range().start..unary.expr.span().byte_range().end;
            self.choice(
                range,
                number.map(|number| (number, text)).into_iter().collect(),
            );
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_match(&mut self, it: &'ast ExprMatch) {
        // Else nothing would take what the arm took.
        let has_wildcard = it.arms.iter().any(|arm| matches!(arm.pat, Pat::Wild(_)));
        self.visit_expr(&it.expr);
        let arms = it.arms.iter();
        for arm in arms.filter(|arm| arm.attrs.iter().all(is_compiled)) {
            match &arm.pat {
                Pat::Guard(PatGuard { guard, .. }) => {
                    let words = self.words(guard.span());
                    let mut to = |value| {
                        let what = self.name(format!("replace match guard {words} with {value}"));
                        self.change(guard.span(), what)
                    };
                    if let (Some(yes), Some(no)) = (to(true), to(false)) {
                        let range = guard.span().byte_range();
                        self.found.edits.push(Edit::Guard { range, yes, no });
                    }
                    self.visit_expr(guard);
                }
                Pat::Wild(_) => {}
                pattern if has_wildcard => {
                    let words = self.words(pattern.span());
                    let what = self.name(format!("delete match arm {words}"));
                    if let Some(number) = self.change(pattern.span(), what) {
                        let at = pattern.span().byte_range().end;
                        self.found.edits.push(Edit::Arm { at, number });
                    }
                }
                _ => {}
            }
            self.visit_expr(&arm.body);
        }
    }

    fn visit_expr_struct(&mut self, it: &'ast ExprStruct) {
        if it.rest.is_some() {
            let all = it.span().byte_range();
            let mut chosen = Vec::new();
            for pair in it.fields.pairs() {
                let field = pair.value();
                let Member::Named(name) = &field.member else {
                    continue;
                };
                let of = self.words(it.path.span());
                let what = self.name(format!("delete field {name} from struct {of} expression"));
                let number = self.change(field.span(), what);
                let start = field.span().byte_range().start;
                let end = pair
                    .punct()
                    .map_or(field.span(), |comma| comma.span())
                    .byte_range()
                    .end;
                let text = format!(
                    "{}{}",
                    &self.text[all.start..start],
                    &self.text[end..all.end]
                );
                chosen.extend(number.map(|number| (number, text)));
            }
            self.choice(all, chosen);
        }
        visit::visit_expr_struct(self, it);
    }
}

fn assigns(operator: BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

impl Finder<'_> {
    /// The expression with another operator, of the same operands.
    fn replaced(&self, binary: &ExprBinary, other: &str) -> String {
        let (left, right) = (
            self.source(binary.left.span()),
            self.source(binary.right.span()),
        );
        format!("({left}) {other} ({right})")
    }
}
