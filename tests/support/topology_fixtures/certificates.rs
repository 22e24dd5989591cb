//! Certificates for servers and clients, made by `openssl` at run time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::free_port;

/// An authority and its certificates, in a temporary directory.
pub struct Certificates {
    dir: TempDir,
}

/// A certificate and its key, as files.
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Pair {
    pub fn certificate_pem(&self) -> String {
        fs::read_to_string(&self.certificate).expect("the certificate was made")
    }

    pub fn key_pem(&self) -> String {
        fs::read_to_string(&self.key).expect("the key was made")
    }
}

impl Certificates {
    /// Makes an authority that no other program trusts.
    pub fn new() -> Certificates {
        let dir = tempfile::tempdir().expect("a temporary directory");
        openssl(
            dir.path(),
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 90 \
             -keyout ca.key -out ca.pem -subj /CN=test-authority \
             -addext keyUsage=critical,keyCertSign,cRLSign",
        );
        Certificates { dir }
    }

    /// The authority's certificate as PEM.
    pub fn authority_pem(&self) -> String {
        fs::read_to_string(self.authority()).expect("the authority was made")
    }

    /// The authority's certificate as a file.
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// A certificate for the names of this machine.
    pub fn server(&self) -> Pair {
        self.signed("server", "DNS:localhost,IP:127.0.0.1,IP:::1", 2)
    }

    /// A certificate for these names, such as `DNS:localhost`, in files of this name.
    pub fn of(&self, name: &str, subjects: &str) -> Pair {
        self.signed(name, subjects, 2)
    }

    /// A certificate for the names of this machine that is valid for this many days.
    pub fn lasting(&self, days: u32) -> Pair {
        let name = format!("days-{days}");
        self.signed(&name, "DNS:localhost,IP:127.0.0.1", days)
    }

    /// The SHA-256 of the public key in the certificate of the authority, in hexadecimal digits and in base64.
    pub fn authority_pin(&self) -> [String; 2] {
        let dir = self.dir.path();
        openssl(dir, "x509 -in ca.pem -pubkey -noout -out public.pem");
        openssl(
            dir,
            "pkey -pubin -in public.pem -outform DER -out public.der",
        );
        openssl(dir, "dgst -sha256 -r -out public.hex public.der");
        openssl(dir, "dgst -sha256 -binary -out public.sha256 public.der");
        openssl(dir, "base64 -in public.sha256 -out public.base64");
        ["public.hex", "public.base64"].map(|file| {
            let text = fs::read_to_string(dir.join(file)).expect("it was made");
            text.split(' ').next().unwrap_or_default().trim().to_owned()
        })
    }

    pub fn elsewhere(&self) -> Pair {
        self.signed("elsewhere", "DNS:elsewhere.example,IP:192.0.2.7", 2)
    }

    /// A certificate for this machine that expired a moment ago.
    pub fn expired(&self) -> Pair {
        let pair = self.signed("expired", "DNS:localhost,IP:127.0.0.1", 0);
        // Its time has whole seconds.
        std::thread::sleep(std::time::Duration::from_millis(2100));
        pair
    }

    /// A certificate of version 1, which results from signing without extensions.
    pub fn first_version(&self) -> Pair {
        let dir = self.dir.path();
        openssl(
            dir,
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
             -keyout v1.key -out v1.csr -subj /CN=localhost",
        );
        openssl(
            dir,
            "x509 -req -in v1.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out v1.pem",
        );
        Pair {
            certificate: dir.join("v1.pem"),
            key: dir.join("v1.key"),
        }
    }

    /// The authority's own certificate, for a server that presents it.
    pub fn of_itself(&self) -> Pair {
        Pair {
            certificate: self.authority(),
            key: self.dir.path().join("ca.key"),
        }
    }

    pub fn client(&self) -> Pair {
        self.signed("client", "DNS:client.example", 2)
    }

    fn signed(&self, name: &str, subjects: &str, days: u32) -> Pair {
        let dir = self.dir.path();
        let pair = Pair {
            certificate: dir.join(format!("{name}.pem")),
            key: dir.join(format!("{name}.key")),
        };
        if pair.certificate.exists() {
            return pair;
        }
        fs::write(
            dir.join(format!("{name}.ext")),
            format!("subjectAltName={subjects}\nbasicConstraints=CA:FALSE\n"),
        )
        .expect("the directory can be written");
        openssl(
            dir,
            &format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
                 -keyout {name}.key -out {name}.csr -subj /CN={name}"
            ),
        );
        openssl(
            dir,
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} \
                 -extfile {name}.ext -out {name}.pem"
            ),
        );
        pair
    }

    /// The arguments for TLS on a second port, and that port.
    ///
    /// The first port stays plain, for the administrator. `asks_clients` is whether clients need a certificate.
    pub fn server_args(&self, pair: &Pair, asks_clients: bool) -> (Vec<String>, u16) {
        let port = free_port();
        let path = |path: &Path| path.to_str().expect("temporary paths are UTF-8").to_owned();
        let args = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", path(&pair.certificate)),
            ("--tls-key-file", path(&pair.key)),
            ("--tls-ca-cert-file", path(&self.authority())),
            (
                "--tls-auth-clients",
                if asks_clients { "yes" } else { "no" }.to_owned(),
            ),
        ];
        let args = args
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect();
        (args, port)
    }
}

fn openssl(dir: &Path, args: &str) {
    let output = Command::new("openssl")
        .args(args.split_whitespace())
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .expect("the program `openssl`; `make test` installs it");
    assert!(
        output.status.success(),
        "openssl {args}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
