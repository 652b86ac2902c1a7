use fullpipe_record::Request;

/// Returns the arguments of `fullpipe measure` that send `request` to `host`, as data: a flag that
/// `measure` gets later needs no change here. UDP is sent without asking, as an emulated path is
/// nobody else's.
///
/// # Panics
/// Never: a request holds strings and numbers, all of which can be written as JSON.
pub fn measure_arguments(host: &str, request: &Request) -> Vec<String> {
    let request = serde_json::to_string(request).expect("a request can always be written as JSON");
    [
        "measure",
        host,
        "--yes",
        "--no-store",
        "--request",
        &request,
    ]
    .map(str::to_owned)
    .to_vec()
}
