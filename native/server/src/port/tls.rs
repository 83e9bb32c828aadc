//! The certificate of the server.

use std::io;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub type Acceptor = TlsAcceptor;

/// From PEM: a chain of certificates, the server's own first, and its key.
pub fn acceptor(certificates: &[u8], key: &[u8]) -> io::Result<Acceptor> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain =
        chain.map_err(|error| io::Error::other(format!("the certificate is no PEM: {error}")))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| io::Error::other(format!("the key is no PEM: {error}")))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config).into())
}
