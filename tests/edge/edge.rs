//! A real edge as a child process, with a recipe of `examples/edge` in which nothing but the addresses was changed.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use crate::{port, until};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Nginx,
    HaProxy,
}

impl Program {
    pub const ALL: [Self; 2] = [Self::Nginx, Self::HaProxy];

    fn folder(self) -> PathBuf {
        let edges = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/edge");
        edges.join(match self {
            Self::Nginx => "nginx",
            Self::HaProxy => "haproxy",
        })
    }

    /// The recipe's own file, and the one that goes with each of them.
    fn files(self, recipe: &str) -> [String; 2] {
        match self {
            Self::Nginx => ["mcp-proxy.conf".into(), format!("{recipe}.conf")],
            Self::HaProxy => ["mcp.cfg".into(), format!("{recipe}.cfg")],
        }
    }

    fn listens(self) -> &'static str {
        match self {
            Self::Nginx => "listen 8000;",
            Self::HaProxy => "bind :8000",
        }
    }
}

/// An edge that ends with its handle.
pub struct Edge {
    program: Program,
    recipe: &'static str,
    pub address: SocketAddr,
    child: Child,
    folder: PathBuf,
}

impl Edge {
    pub async fn start(program: Program, recipe: &'static str, pods: [SocketAddr; 3]) -> Self {
        let address = port::free();
        let folder = own_folder();
        let folder = folder.as_path();
        let mut changed = [0; 4];
        for file in program.files(recipe) {
            let path = program.folder().join(&file);
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            fs::write(
                folder.join(file),
                templated(program, text, address, pods, &mut changed),
            )
            .expect("a file of its own");
        }
        assert!(
            changed.iter().all(|count| *count > 0),
            "{recipe}: {changed:?}"
        );
        let child = launch(program, recipe, folder);
        let mut edge = Self {
            program,
            recipe,
            address,
            child,
            folder: folder.to_owned(),
        };
        edge.listens().await;
        edge
    }

    /// Ends it, and starts it again without any memory.
    pub async fn restart(&mut self) {
        self.child.kill().await.expect("it is there");
        self.child = launch(self.program, self.recipe, &self.folder);
        self.listens().await;
    }

    async fn listens(&mut self) {
        let (program, recipe) = (self.program, self.recipe);
        let said = || fs::read_to_string(self.folder.join("said")).unwrap_or_default();
        until(&format!("{program:?} with {recipe:?}"), async || {
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "{program:?} {recipe:?}: {}", said());
            TcpStream::connect(self.address).await.ok()
        })
        .await;
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Puts the test's addresses where the recipe has its own, and counts how often.
fn templated(
    program: Program,
    mut text: String,
    edge: SocketAddr,
    pods: [SocketAddr; 3],
    changed: &mut [usize; 4],
) -> String {
    let listen = program.listens();
    let address = match program {
        Program::Nginx => format!("listen {edge};"),
        Program::HaProxy => format!("bind {edge}"),
    };
    let of_pods = (11..).map(|host| format!("10.0.0.{host}:8080"));
    let of_pods = of_pods.zip(pods.map(|pod| pod.to_string()));
    let all = of_pods.chain([(listen.to_owned(), address)]);
    for ((from, to), changed) in all.zip(changed) {
        *changed += text.matches(&from).count();
        text = text.replace(&from, &to);
    }
    text
}

fn own_folder() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("edge-{}-{number}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder of its own");
    folder
}

fn launch(program: Program, recipe: &str, folder: &Path) -> Child {
    let [first, second] = program.files(recipe);
    let mut command = match program {
        Program::Nginx => {
            // What Debian's own nginx.conf has around the files that it includes.
            let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|kind| format!("{kind}_temp_path {kind};"))
                .concat();
            let main = format!(
                "daemon off; master_process off; pid nginx.pid; error_log stderr warn;
                 events {{}} http {{ access_log off; {paths} include {second}; }}"
            );
            fs::write(folder.join("nginx.conf"), main).expect("a file of its own");
            let mut nginx = Command::new("nginx");
            nginx.arg("-p").arg(folder);
            nginx.arg("-c").arg(folder.join("nginx.conf"));
            nginx.args(["-e", "stderr"]);
            nginx
        }
        Program::HaProxy => {
            let mut haproxy = Command::new("haproxy");
            haproxy.args(["-db", "-q", "-f"]).arg(folder.join(first));
            haproxy.arg("-f").arg(folder.join(second));
            haproxy
        }
    };
    let said = fs::File::create(folder.join("said")).expect("a file of its own");
    command.stdin(Stdio::null()).stderr(said).kill_on_drop(true);
    command.spawn().unwrap_or_else(|error| {
        panic!("{program:?} is needed here, scripts/test installs it: {error}")
    })
}
