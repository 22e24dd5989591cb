//! Values that a function could return instead of what it works out, by its return type.

use syn::spanned::Spanned;
use syn::{GenericArgument, Path, PathArguments, ReturnType, Type};

/// The expressions for a return type; an error is the reason why there are none.
pub(crate) fn of_return(output: &ReturnType, text: &str) -> Result<Vec<String>, &'static str> {
    match output {
        ReturnType::Default => Ok(vec!["()".to_owned()]),
        ReturnType::Type(_, result) => of_type(result, text),
    }
}

fn of_type(result: &Type, text: &str) -> Result<Vec<String>, &'static str> {
    let of = |inner: &Type| of_type(inner, text);
    let leaked = |values: Vec<String>| {
        let with = |value| format!("Box::leak(Box::new({value}))");
        values.into_iter().map(with).collect()
    };
    let slices = |element: &Type| -> Result<Vec<String>, &'static str> {
        let one = |value| format!("Vec::leak(vec![{value}])");
        let empty = "Vec::leak(Vec::new())".to_owned();
        Ok([empty]
            .into_iter()
            .chain(of(element)?.into_iter().map(one))
            .collect())
    };
    Ok(match result {
        Type::Path(path) => of_path(&path.path, text)?,
        Type::Paren(inner) => of(&inner.elem)?,
        Type::Array(array) => {
            let length = &text[array.len.span().byte_range()];
            let values = of(&array.elem)?.into_iter();
            values.map(|value| format!("[{value}; {length}]")).collect()
        }
        Type::Slice(slice) => slices(&slice.elem)?,
        Type::Reference(reference) => match &*reference.elem {
            Type::Path(path) if path.path.is_ident("str") => of_path(&path.path, text)?,
            Type::Slice(slice) => slices(&slice.elem)?,
            inner => leaked(of(inner)?),
        },
        Type::Tuple(tuple) => {
            let mut rows = vec![String::new()];
            for element in &tuple.elems {
                let values = of(element)?;
                let longer = rows
                    .iter()
                    .flat_map(|row| values.iter().map(move |value| format!("{row}{value}, ")));
                rows = longer.collect();
            }
            rows.into_iter()
                .map(|row| format!("({})", row.trim_end()))
                .collect()
        }
        Type::ImplTrait(_) => return Err("a type behind `impl` has one value here"),
        Type::Never(_) => Vec::new(),
        _ => vec!["Default::default()".to_owned()],
    })
}

fn of_path(path: &Path, text: &str) -> Result<Vec<String>, &'static str> {
    let Some(last) = path.segments.last() else {
        return Ok(Vec::new());
    };
    let arguments: Vec<&Type> = match &last.arguments {
        PathArguments::AngleBracketed(given) => {
            let types = given.args.iter().filter_map(|argument| match argument {
                GenericArgument::Type(inner) => Some(inner),
                _ => None,
            });
            types.collect()
        }
        _ => Vec::new(),
    };
    let of = |inner: &Type| of_type(inner, text);
    let around = |open: &str, values: Vec<String>| -> Vec<String> {
        let with = |value| format!("{open}({value})");
        values.into_iter().map(with).collect()
    };
    let owned =
        |values: &[&str]| -> Vec<String> { values.iter().map(|it| (*it).to_owned()).collect() };
    let name = last.ident.to_string();
    Ok(match (&*name, &arguments[..]) {
        ("bool", []) => owned(&["true", "false"]),
        ("String", []) => owned(&["String::new()", "\"xyzzy\".into()"]),
        ("str", []) => owned(&["\"\"", "\"xyzzy\""]),
        ("u8" | "u16" | "u32" | "u64" | "u128" | "usize", []) => owned(&["0", "1"]),
        ("i8" | "i16" | "i32" | "i64" | "i128" | "isize", []) => owned(&["0", "1", "-1"]),
        ("f32" | "f64", []) => owned(&["0.0", "1.0", "-1.0"]),
        ("Result", []) => owned(&["Ok(Default::default())"]),
        ("Result", [value, ..]) => around("Ok", of(value)?),
        ("Option", [value]) => [owned(&["None"]), around("Some", of(value)?)].concat(),
        ("Vec", [element]) => {
            let one = of(element)?
                .into_iter()
                .map(|value| format!("vec![{value}]"));
            [owned(&["vec![]"]), one.collect()].concat()
        }
        ("Cow", [borrowed]) => {
            let values = of(borrowed)?;
            let owned = values
                .iter()
                .map(|value| format!("{value}.to_owned()"))
                .collect();
            [around("Cow::Borrowed", values), around("Cow::Owned", owned)].concat()
        }
        ("Box" | "Cell" | "RefCell" | "Arc" | "Rc" | "Mutex", [inner]) => {
            around(&format!("{name}::new"), of(inner)?)
        }
        ("BinaryHeap" | "BTreeSet" | "HashSet" | "LinkedList" | "VecDeque", [element]) => {
            let one = |value| format!("{name}::from_iter([{value}])");
            [
                vec![format!("{name}::new()")],
                of(element)?.into_iter().map(one).collect(),
            ]
            .concat()
        }
        ("BTreeMap" | "HashMap", [key, value]) => {
            let (keys, values) = (of(key)?, of(value)?);
            let pairs = keys
                .iter()
                .flat_map(|key| values.iter().map(move |value| (key, value)));
            let one = |(key, value)| format!("{name}::from_iter([({key}, {value})])");
            [vec![format!("{name}::new()")], pairs.map(one).collect()].concat()
        }
        // Something that holds another, of which nobody knows how it is made.
        (_, [inner]) => {
            let ways = |value: String| {
                let from_iter = format!("{name}::from_iter([{value}])");
                [
                    from_iter,
                    format!("{name}::new({value})"),
                    format!("{name}::from({value})"),
                ]
            };
            [
                vec![format!("{name}::new()")],
                of(inner)?.into_iter().flat_map(ways).collect(),
            ]
            .concat()
        }
        _ => owned(&["Default::default()"]),
    })
}
