# SPDX-License-Identifier: MIT OR Apache-2.0
"""`talk FOLDER`: TLS, HTTP and DNS between real programs on 127.0.0.1. `read FILE`: its fields by tshark, as JSON."""
import hashlib, http.server, json, socket, ssl, struct, subprocess, sys, threading

ANSWERS = {"www.example.org": 0, "no.example.org": 3, "silent.example.org": None}
TLS_CLIENTS = [
    ["openssl", "s_client", "-connect", "127.0.0.1:443", "-servername", "one.example.org", "-alpn", "h2,http/1.1"],
    ["openssl", "s_client", "-connect", "127.0.0.1:443", "-tls1_2", "-servername", "two.example.org", "-alpn", "http/1.1"],
    ["openssl", "s_client", "-connect", "127.0.0.1:443", "-noservername", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
    ["curl", "-sk", "--resolve", "three.example.org:443:127.0.0.1", "https://three.example.org/"],
]


def question(number, name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"


def resolve(server):
    while True:
        message, client = server.recvfrom(1500)
        name = next(name for name in ANSWERS if question(0, name)[12:] == message[12:])
        code = ANSWERS[name]
        if code is not None:
            flags, answers = 0x8180 | code, int(code == 0)
            head = message[:2] + struct.pack(">5H", flags, 1, answers, 0, 0)
            data = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc0\0\2\1" if answers else b""
            server.sendto(head + message[12:] + data, client)


def talk(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test",
                    "-keyout", f"{folder}/key", "-out", f"{folder}/cert"], check=True, stderr=subprocess.DEVNULL)
    handler = http.server.SimpleHTTPRequestHandler
    handler.log_message = lambda *_: None
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 80), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/cert", f"{folder}/key")
    context.set_alpn_protocols(["http/1.1"])
    secure = http.server.ThreadingHTTPServer(("127.0.0.1", 443), handler)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    for serve, server in [(resolve, names), (lambda web: web.serve_forever(), web), (lambda web: web.serve_forever(), secure)]:
        threading.Thread(target=serve, args=[server], daemon=True).start()
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number, (name, code) in enumerate(ANSWERS.items(), 1000):
        client.sendto(question(number, name), ("127.0.0.1", 53))
        if code is not None:
            client.recv(1500)
    for command in TLS_CLIENTS:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for path in ["", "the-last"]:
        subprocess.run(["curl", "-s", "--resolve", "plain.example.org:80:127.0.0.1", "-o", "/dev/null",
                        f"http://plain.example.org/{path}"], check=True)


def tshark(file, wanted, *fields):
    words = ["tshark", "-n", "-r", file, "-Y", wanted, "-T", "fields", "-E", "aggregator=;"]
    lines = subprocess.run(words + [word for field in fields for word in ["-e", field]],
                           check=True, capture_output=True, text=True).stdout.splitlines()
    return [[value.split(";") if value else [] for value in line.split("\t")] for line in lines]


def ja4(versions, ciphers, extensions, signatures, alpn):
    def numbers(values):
        values = [int(value, 0) for value in values]
        return [value for value in values if value & 0x0f0f != 0x0a0a]

    def hashed(text):
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    ciphers, extensions = numbers(ciphers), numbers(extensions)
    version = {0x303: "12", 0x304: "13"}[max(numbers(versions))]
    sni = "d" if 0 in extensions else "i"
    first = alpn[0][0] + alpn[0][-1] if alpn else "00"
    rest = ",".join(f"{value:04x}" for value in sorted(extensions) if value not in (0, 16))
    order = ",".join(f"{value:04x}" for value in numbers(signatures))
    lists = hashed(",".join(f"{value:04x}" for value in sorted(ciphers))), hashed(f"{rest}_{order}")
    return f"t{version}{sni}{len(ciphers):02}{len(extensions):02}{first}_{lists[0]}_{lists[1]}"


def read(file):
    hello = "tls.handshake."
    tls, told = {}, {"0x0303": "TLSv12", "0x0304": "TLSv13"}
    for port, name, ciphers, extensions, signatures, alpn, legacy, versions in tshark(
            file, hello + "type==1", "tcp.srcport", hello + "extensions_server_name", hello + "ciphersuite",
            hello + "extension.type", hello + "sig_hash_alg", hello + "extensions_alpn_str", hello + "version",
            hello + "extensions.supported_version"):
        tls[port[0]] = {"server_name": name[0] if name else None, "next_protocol": alpn[0] if alpn else None,
                        "ja4": ja4(versions or legacy, ciphers, extensions, signatures, alpn)}
    for port, cipher, alpn, legacy, versions in tshark(
            file, hello + "type==2", "tcp.dstport", hello + "ciphersuite", hello + "extensions_alpn_str",
            hello + "version", hello + "extensions.supported_version"):
        client = tls[port[0]]
        client["next_protocol"] = alpn[0] if alpn else client["next_protocol"]
        client["version"] = told[(versions or legacy)[0]]
        client["cipher"] = int(cipher[0], 0)
    dns = [{"trans_id": int(number[0], 0), "query": name[0], "rcode": int(code[0]), "answers": a, "rtt": float(time[0])}
           for number, name, code, a, time in tshark(file, "dns.flags.response==1", "dns.id", "dns.qry.name",
                                                     "dns.flags.rcode", "dns.a", "dns.time")]
    hosts = [host[0] for host, in tshark(file, "http.request", "http.host")]
    print(json.dumps({"tls": tls, "dns": dns, "hosts": hosts}))


{"talk": talk, "read": read}[sys.argv[1]](sys.argv[2])
