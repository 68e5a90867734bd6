//! Tests of launcher detection with the variables that launchers set.

use super::launchers::LAUNCHER;
use super::*;
use crate::engine::abi::MAX_PES;
use proptest::prelude::*;

fn environment(text: &str) -> Environment {
    text.split_whitespace()
        .map(|pair| pair.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).unwrap())
        .collect()
}

fn find(text: &str) -> Option<Launched> {
    Launched::find(&environment(text)).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn launched(text: &str) -> Launched {
    find(text).unwrap_or_else(|| panic!("{text}: no launcher"))
}

fn error(text: &str) -> String {
    Launched::find(&environment(text)).expect_err(text).to_string()
}

/// Checks rank, size, local rank, local size, meeting point and launcher.
#[track_caller]
fn is(text: &str, ranks: [usize; 2], local: [Option<usize>; 2], store: Option<&str>, via: &str) {
    let l = launched(text);
    assert_eq!([l.rank, l.size], ranks, "{text}");
    assert_eq!([l.local_rank, l.local_size], local, "{text}");
    assert_eq!(l.store.as_deref(), store, "{text}");
    assert_eq!(l.via, via, "{text}");
}

#[test]
fn no_launcher() {
    assert_eq!(find("HOME=/root PATH=/bin"), None);
    assert_eq!(find("WARPBELL_RANK="), None);
    assert_eq!(find("WARPBELL_SIZE=1"), None);
    // Names that other programs use too.
    assert_eq!(find("RANK=3"), None);
    assert_eq!(find("JOB_COMPLETION_INDEX=3"), None);
    assert_eq!(find("SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n[1-8]"), None);
}

#[test]
fn ours() {
    let text = "WARPBELL_RANK=1 WARPBELL_SIZE=4 WARPBELL_LOCAL_RANK=1 WARPBELL_STORE=127.0.0.1:4000";
    is(text, [1, 4], [Some(1), None], Some("127.0.0.1:4000"), "WARPBELL_RANK");
    assert!(!launched(text).has_server);
    let run = format!("{text} WARPBELL_LOCAL_SIZE=4 WARPBELL_LAUNCHER=run");
    is(&run, [1, 4], [Some(1), Some(4)], Some("127.0.0.1:4000"), "warpbell run");
    assert!(launched(&run).has_server);
    assert_eq!(launched(text).listener, None);
    assert_eq!(launched(&format!("{text} WARPBELL_STORE_FD=7")).listener, Some(7));
    assert!(error(&format!("{text} WARPBELL_STORE_FD=seven")).contains("WARPBELL_STORE_FD is `seven`"));
}

#[test]
fn torchrun() {
    let text = "RANK=5 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node7 MASTER_PORT=29500";
    is(text, [5, 16], [Some(1), Some(4)], Some("node7:29501"), "torchrun");
    let six = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=fd00::1 MASTER_PORT=65535";
    is(six, [0, 2], [None, None], Some("[fd00::1]:20711"), "torchrun");
    is("RANK=0 WORLD_SIZE=2", [0, 2], [None, None], None, "torchrun");
}

#[test]
fn open_mpi() {
    let text = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 \
                OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=2";
    is(text, [2, 4], [Some(0), Some(2)], None, "Open MPI");
    is(&format!("{text} WARPBELL_STORE=a:1"), [2, 4], [Some(0), Some(2)], Some("a:1"), "Open MPI");
}

#[test]
fn hydra() {
    let text = "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
    is(text, [3, 4], [Some(1), Some(2)], None, "PMI");
}

#[test]
fn hydra_with_a_port_gives_no_number() {
    let text = "PMI_ID=1 PMI_PORT=node1:41441 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
    for text in [text.to_owned(), format!("{STEP} {text}"), format!("{text} WARPBELL_STORE=a:1 WARPBELL_SIZE=2")] {
        let e = error(&text);
        assert!(e.contains("PMI_PORT is set and PMI_RANK is not") && e.contains("WARPBELL_RANK (to PMI_ID)"), "{e}");
    }
    is(&format!("{text} WARPBELL_RANK=1 WARPBELL_SIZE=2"), [1, 2], [None, None], None, "WARPBELL_RANK");
    is(&format!("{text} PMI_RANK=1 PMI_SIZE=2"), [1, 2], [Some(1), Some(2)], None, "PMI");
}

#[test]
fn a_store_without_ranks_is_an_error() {
    let e = error("WARPBELL_STORE=a:1 WARPBELL_SECRET=0123456789abcdef");
    assert!(e.contains("WARPBELL_STORE is set and WARPBELL_RANK is not") && e.contains("unset WARPBELL_STORE"), "{e}");
    assert_eq!(find("WARPBELL_STORE=a:1 WARPBELL_SIZE=1"), None);
}

#[test]
fn mvapich2() {
    let text = "MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=1 PMI_RANK=3 PMI_SIZE=4";
    is(text, [3, 4], [Some(1), None], None, "MVAPICH2");
}

#[test]
fn pmix() {
    is("PMIX_RANK=3 WARPBELL_SIZE=4", [3, 4], [None, None], None, "PMIx");
    let e = error("PMIX_RANK=3");
    assert!(e.contains("PMIX_RANK is set") && e.contains("WARPBELL_SIZE is not"), "{e}");
}

const STEP: &str = "SLURM_PROCID=5 SLURM_NTASKS=11 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_TASKS_PER_NODE=4(x2),3 \
                    SLURM_JOB_ID=123456 SLURM_STEP_ID=2 SLURM_STEP_NODELIST=gpu[07-08,11] SLURM_JOB_NODELIST=gpu[01-20]";

#[test]
fn slurm() {
    let port = 20_000 + (123_456 + 2) % 12_768;
    is(STEP, [5, 11], [Some(1), Some(4)], Some(&format!("gpu07:{port}")), "Slurm");
    let smaller = format!("{STEP} SLURM_STEP_NUM_TASKS=6");
    is(&smaller, [5, 6], [Some(1), Some(4)], Some(&format!("gpu07:{port}")), "Slurm");
    let e = error(&STEP.replace("gpu[07-08,11]", "gpu[07-"));
    assert!(e.contains("SLURM_STEP_NODELIST is `gpu[07-`"), "{e}");
}

#[test]
fn flux() {
    let text = "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=0";
    is(text, [1, 2], [Some(0), None], None, "Flux");
}

#[test]
fn cray_pals() {
    let text = "PALS_RANKID=1 PALS_LOCAL_RANKID=1 WARPBELL_SIZE=2 WARPBELL_STORE=x:9";
    is(text, [1, 2], [Some(1), None], Some("x:9"), "Cray PALS");
    assert!(error("PALS_RANKID=1").contains("WARPBELL_SIZE is not"));
}

#[test]
fn leader_worker_set() {
    let text = "LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=3 LWS_LEADER_ADDRESS=w-0.w.default";
    is(text, [1, 3], [None, None], Some("w-0.w.default:20711"), "LeaderWorkerSet");
    // A group without a name for its leader has its address.
    let text = "LWS_WORKER_INDEX=0 LWS_GROUP_SIZE=2 LWS_LEADER_ADDRESS=fd00::7";
    is(text, [0, 2], [None, None], Some("[fd00::7]:20711"), "LeaderWorkerSet");
    assert!(error("LWS_WORKER_INDEX=0 LWS_LEADER_ADDRESS=w-0.w").contains("LWS_GROUP_SIZE is not"));
}

#[test]
fn indexed_job() {
    // deploy/kubernetes/job.yaml.
    let text = "JOB_COMPLETION_INDEX=1 WARPBELL_SIZE=2 WARPBELL_STORE=warpbell-0.warpbell:20711";
    is(text, [1, 2], [None, None], Some("warpbell-0.warpbell:20711"), "Kubernetes Indexed Job");
    let e = error("JOB_COMPLETION_INDEX=2 WARPBELL_SIZE=2");
    assert!(e.contains("JOB_COMPLETION_INDEX is `2`") && e.contains("WARPBELL_SIZE says 2"), "{e}");
    let text = "JOB_COMPLETION_INDEX=2 WARPBELL_SIZE=4";
    is(text, [2, 4], [None, None], None, "Kubernetes Indexed Job");
    let e = launched(text).store_address().unwrap_err().to_string();
    assert!(e.contains("WARPBELL_STORE=host:port") && e.contains("<job>-0.<service>"), "{e}");
}

#[test]
fn inner_launchers_come_first_and_outer_ones_fill_in() {
    // An mpirun inside a Slurm step: its own ranks, and no meeting point, since the step has other ranks.
    let text = format!("{STEP} OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2");
    is(&text, [1, 2], [None, None], None, "Open MPI");
    // srun --mpi=pmix and --mpi=pmi2: the same ranks under two names.
    let port = 20_000 + (123_456 + 2) % 12_768;
    let store = format!("gpu07:{port}");
    is(&format!("{STEP} PMIX_RANK=5"), [5, 11], [None, None], Some(&store), "PMIx");
    is(&format!("{STEP} PMI_RANK=5 PMI_SIZE=11"), [5, 11], [None, None], Some(&store), "PMI");
    // torchrun on each pod of a LeaderWorkerSet.
    let text = "RANK=3 WORLD_SIZE=8 MASTER_ADDR=w-0 MASTER_PORT=100 LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2";
    is(text, [3, 8], [None, None], Some("w-0:101"), "torchrun");
    // warpbell's own variables take precedence.
    let text = format!("{STEP} RANK=0 WORLD_SIZE=9 WARPBELL_RANK=1 WARPBELL_SIZE=2 WARPBELL_STORE=h:1");
    is(&text, [1, 2], [None, None], Some("h:1"), "WARPBELL_RANK");
}

#[test]
fn what_contradicts_itself_names_the_variable_and_its_value() {
    for (text, words) in [
        ("WARPBELL_RANK=1", &["WARPBELL_RANK is set", "WARPBELL_SIZE is not"][..]),
        ("WARPBELL_SIZE=2", &["WARPBELL_SIZE is set", "WARPBELL_RANK is not"]),
        ("WORLD_SIZE=2 MASTER_ADDR=x", &["torchrun", "WORLD_SIZE is set", "RANK is not"]),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=x", &["MASTER_ADDR is set", "MASTER_PORT is not"]),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=x MASTER_PORT=http", &["MASTER_PORT is `http`"]),
        ("OMPI_COMM_WORLD_RANK=0", &["Open MPI", "OMPI_COMM_WORLD_SIZE is not"]),
        ("PMI_RANK=1", &["PMI_SIZE is not"]),
        ("WARPBELL_RANK=4 WARPBELL_SIZE=4", &["WARPBELL_RANK is `4`", "WARPBELL_SIZE says 4", "0 to 3"]),
        ("WARPBELL_RANK=one WARPBELL_SIZE=4", &["WARPBELL_RANK is `one`", "number"]),
        ("WARPBELL_RANK=-1 WARPBELL_SIZE=4", &["WARPBELL_RANK is `-1`"]),
        ("WARPBELL_RANK=+1 WARPBELL_SIZE=4", &["WARPBELL_RANK is `+1`"]),
        ("WARPBELL_RANK=0 WARPBELL_SIZE=0", &["WARPBELL_SIZE is `0`", "1 to 1024"]),
        ("WARPBELL_RANK=0 WARPBELL_SIZE=99999", &["WARPBELL_SIZE is `99999`"]),
        ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_LOCAL_RANK=7", &["WARPBELL_LOCAL_RANK is `7`"]),
        (
            "WARPBELL_RANK=3 WARPBELL_SIZE=4 WARPBELL_LOCAL_RANK=2 WARPBELL_LOCAL_SIZE=2",
            &["WARPBELL_LOCAL_RANK is `2`", "WARPBELL_LOCAL_SIZE says 2"],
        ),
        ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_LOCAL_SIZE=0", &["WARPBELL_LOCAL_SIZE is `0`"]),
        ("RANK=0 WORLD_SIZE=4 WARPBELL_SIZE=3", &["WARPBELL_SIZE is `3`", "torchrun gives 4 in WORLD_SIZE"]),
        ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_STORE=host", &["WARPBELL_STORE is `host`", "host:port"]),
        ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_STORE=:80", &["WARPBELL_STORE is `:80`"]),
        ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_STORE=fd00::1", &["WARPBELL_STORE is `fd00::1`"]),
        ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_STORE=h:70000", &["WARPBELL_STORE is `h:70000`"]),
    ] {
        let e = error(text);
        for word in words {
            assert!(e.contains(word), "{text}: no `{word}` in: {e}");
        }
    }
}

#[test]
fn the_time_to_come_is_a_time() {
    assert_eq!(timeout(&environment("")).unwrap(), None);
    assert_eq!(timeout(&environment("WARPBELL_TIMEOUT=90s")).unwrap(), Some(Duration::from_secs(90)));
    let e = timeout(&environment("WARPBELL_TIMEOUT=soon")).unwrap_err().to_string();
    assert!(e.contains("WARPBELL_TIMEOUT is `soon`"), "{e}");
}

fn variable() -> impl Strategy<Value = (String, String)> {
    let mut names: Vec<&str> = ROWS
        .iter()
        .flat_map(|r| r.size.iter().copied().chain([r.rank]).chain(r.local_rank).chain(r.local_size))
        .collect();
    names.extend([STORE, LAUNCHER, "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_NODELIST", "SLURM_NODEID"]);
    names.extend(["SLURM_TASKS_PER_NODE", "SLURM_JOB_ID", "LWS_LEADER_ADDRESS"]);
    let values = prop_oneof!["[0-9]{1,4}", "[a-z\\[\\]:,()0-9-]{0,12}", ".{0,6}"];
    (prop::sample::select(names).prop_map(str::to_owned), values)
}

proptest! {
    #[test]
    fn any_variables_give_a_rank_of_a_world_or_an_error(
        pairs in prop::collection::vec(variable(), 0..8)
    ) {
        let environment: Environment = pairs.into_iter().collect();
        match Launched::find(&environment) {
            Ok(Some(l)) => {
                prop_assert!(l.rank < l.size && l.size <= MAX_PES);
                prop_assert!(l.local_size.is_none_or(|n| n > 0));
            }
            Ok(None) => {}
            Err(e) => prop_assert!(!e.to_string().is_empty()),
        }
    }
}
