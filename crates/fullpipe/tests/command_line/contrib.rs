//! What `contrib` has for clusters: manifests of Kubernetes, and a role of Ansible.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fullpipe_store::read_import;
use fullpipe_testkit::{assert_says, require};
use jiff::Timestamp;
use serde_json::Value;

use crate::common::{fullpipe, run};

fn contrib(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib")
        .join(path)
}

/// Returns the one document of a file of YAML.
fn yaml(path: &str) -> Value {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
    let mut python = Command::new("/usr/bin/python3");
    let file = fs::File::open(contrib(path)).unwrap();
    let output = python.args(["-c", script]).stdin(file).output().unwrap();
    assert!(output.status.success(), "{path}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the pods of a manifest and their only container.
fn pods_and_container(manifest: &Value) -> (&Value, &Value) {
    let pods = &manifest["spec"]["template"]["spec"];
    let containers = pods["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    (pods, &containers[0])
}

/// Holds the names of what a container mounts against the volumes of its pods.
fn assert_mounts_exist(pods: &Value, container: &Value) {
    let names = |list: &Value| -> Vec<String> {
        let items = list.as_array().unwrap().iter();
        let mut names: Vec<String> = items
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&container["volumeMounts"]), names(&pods["volumes"]));
}

fn texts(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item.as_str().unwrap()).collect()
}

/// Runs what the pods of the job run, on this machine, each with its index.
#[test]
fn an_indexed_job_has_the_whole_grid_in_its_shards() {
    require!(Ansible);
    let job = yaml("kubernetes/grid.yaml");
    assert_eq!([&job["apiVersion"], &job["kind"]], ["batch/v1", "Job"]);
    assert_eq!(job["spec"]["completionMode"], "Indexed");
    let (pods, container) = pods_and_container(&job);
    assert_eq!(pods["restartPolicy"], "Never");
    assert_mounts_exist(pods, container);
    let count = job["spec"]["completions"].as_u64().unwrap();
    assert_eq!(
        container["env"][0]["value"],
        count.to_string(),
        "SHARDS are the completions"
    );
    let results = tempfile::tempdir().unwrap();
    let programs = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(
        env!("CARGO_BIN_EXE_fullpipe"),
        programs.path().join("fullpipe"),
    )
    .unwrap();
    let (program, arguments) = (texts(&container["command"]), texts(&container["args"]));
    let path = format!(
        "{}:{}",
        programs.path().display(),
        std::env::var("PATH").unwrap()
    );
    // Short transfers have as many rows.
    let grid: Vec<&str> = arguments[2..]
        .iter()
        .copied()
        .chain(["--time=1", "--bandwidth=1M,2M"])
        .filter(|flag| *flag != "--bandwidth=100M,1G")
        .collect();
    assert_eq!(grid.len(), arguments.len() - 2 + 1);
    for index in 0..count {
        let mut pod = Command::new(program[0]);
        pod.args(&program[1..]).args(&arguments[..2]).args(&grid);
        pod.env("PATH", &path)
            .env("JOB_COMPLETION_INDEX", index.to_string());
        pod.env("SHARDS", count.to_string())
            .env("RESULTS", results.path());
        let output = run(&mut pod, 120);
        assert!(output.status.success(), "{index}: {output:?}");
    }
    let bodies = |json: &[u8]| {
        let rows = read_import(json, Timestamp::UNIX_EPOCH).unwrap();
        rows.into_iter().map(|row| row.body).collect::<Vec<_>>()
    };
    let files = fs::read_dir(results.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut shards: Vec<Vec<u8>> = files
        .flat_map(|file| bodies(&fs::read(file).unwrap()))
        .collect();
    let mut whole = bodies(&run(&mut fullpipe(&[&grid[..], &["--json"]].concat()), 120).stdout);
    shards.sort();
    whole.sort();
    assert!(
        shards == whole,
        "{} rows, and not {}",
        shards.len(),
        whole.len()
    );
}

#[test]
fn an_agent_runs_on_each_node_with_its_state_and_policy() {
    require!(Ansible);
    let agent = yaml("kubernetes/fleet-agent.yaml");
    assert_eq!(
        [&agent["apiVersion"], &agent["kind"]],
        ["apps/v1", "DaemonSet"]
    );
    let labels = &agent["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&agent["spec"]["selector"]["matchLabels"], labels);
    let (pods, container) = pods_and_container(&agent);
    assert_mounts_exist(pods, container);
    assert_eq!(pods["hostNetwork"], true);
    let security = &container["securityContext"];
    assert_eq!(security["capabilities"]["drop"], serde_json::json!(["ALL"]));
    assert_eq!(
        [
            &security["allowPrivilegeEscalation"],
            &security["readOnlyRootFilesystem"]
        ],
        [false, true]
    );
    let arguments = texts(&container["args"]);
    assert_eq!(arguments[..3], ["fleet", "agent", "$(CONTROLLER)"]);
    for (flag, volume) in [("--state=", 0), ("--policy=", 1)] {
        let file = arguments
            .iter()
            .find_map(|argument| argument.strip_prefix(flag))
            .unwrap();
        let mount = container["volumeMounts"][volume]["mountPath"]
            .as_str()
            .unwrap();
        assert!(file.starts_with(mount), "{file} is not in {mount}");
    }
}

/// Runs the role on a folder in place of a host.
fn install(root: &Path, variables: &[&str]) -> std::process::Output {
    let mut ansible = Command::new("/usr/bin/ansible-playbook");
    ansible.args(["--inventory=localhost,", "--connection=local"]);
    ansible.arg(contrib("ansible/fleet-agent.yml"));
    ansible
        .env("HOME", root)
        .env("ANSIBLE_LOCAL_TEMP", root.join("tmp"))
        .env("LC_ALL", "C.UTF-8");
    let own = [
        "ansible_python_interpreter=/usr/bin/python3".to_owned(),
        format!("fullpipe_root={}", root.display()),
        "fullpipe_program=/bin/true".to_owned(),
    ];
    let all = own
        .iter()
        .map(String::as_str)
        .chain(variables.iter().copied());
    ansible.args(all.flat_map(|variable| ["--extra-vars", variable]));
    run(&mut ansible, 180)
}

#[test]
fn the_role_installs_program_unit_policy_and_invitation_and_changes_nothing_twice() {
    require!(Ansible);
    let root = tempfile::tempdir().unwrap();
    let policy = root.path().join("own-policy.toml");
    fs::write(&policy, "own").unwrap();
    let variables = [
        "fullpipe_controller=https://controller.example",
        "fullpipe_invite=CODE-1",
        &format!("fullpipe_policy={}", policy.display()),
    ];
    for changes in ["changed=5", "changed=0"] {
        let output = install(root.path(), &variables);
        assert!(output.status.success(), "{output:?}");
        assert_says(&String::from_utf8_lossy(&output.stdout), &[changes]);
    }
    let unit = root
        .path()
        .join("etc/systemd/system/fullpipe-fleet-agent.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert_eq!(
        unit,
        fs::read_to_string(contrib("fullpipe-fleet-agent.service")).unwrap()
    );
    let settings = root.path().join("etc/fullpipe/fleet-agent.env");
    assert_eq!(
        settings.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    let settings = fs::read_to_string(settings).unwrap();
    assert_eq!(
        settings,
        "FULLPIPE_CONTROLLER=https://controller.example\nFULLPIPE_INVITE=CODE-1\n"
    );
    // Each is what the unit reads.
    for word in [
        "${FULLPIPE_CONTROLLER}",
        "${FULLPIPE_INVITE}",
        "/etc/fullpipe/fleet-agent.env",
        "/etc/fullpipe/policy.toml",
    ] {
        assert!(unit.contains(word), "{word}");
    }
    assert_eq!(
        fs::read_to_string(root.path().join("etc/fullpipe/policy.toml")).unwrap(),
        "own"
    );
    assert_eq!(
        root.path()
            .join("usr/bin/fullpipe")
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o755
    );
}

#[test]
fn the_role_refuses_what_would_be_another_line_of_the_settings() {
    require!(Ansible);
    let root = tempfile::tempdir().unwrap();
    let hostile = r#"{"fullpipe_controller": "https://a.example", "fullpipe_policy": "/dev/null", "fullpipe_invite": "A\nLD_PRELOAD=/tmp/x"}"#;
    let refused = install(root.path(), &[hostile]);
    assert!(!refused.status.success());
    assert_says(
        &String::from_utf8_lossy(&refused.stdout),
        &["fullpipe_invite a code"],
    );
    assert!(!root.path().join("etc").exists());
}
