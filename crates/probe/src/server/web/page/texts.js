// The texts of the page: for each its English and its German form. {name} stands for what is filled in.
export const LANGUAGES = ["en", "de"];

export const TEXTS = {
  title: ["How fast, and what is the limit?", "Wie schnell, und was begrenzt?"],
  intro: [
    "Press Start. Half a minute later you know how fast data moves between this device and this server, how quickly it answers meanwhile, and what sets the limit.",
    "Drücken Sie Start. Eine halbe Minute später wissen Sie, wie schnell Daten zwischen diesem Gerät und diesem Server fließen, wie rasch er dabei antwortet und was die Grenze setzt.",
  ],
  start: ["Start", "Start"],
  stop: ["Stop", "Abbrechen"],
  again: ["Start again", "Noch einmal"],
  cost: [
    "It moves all that the connection carries in 20 seconds: about 250 MB at 100 Mbit/s.",
    "Übertragen wird, was die Verbindung in 20 Sekunden schafft: bei 100 Mbit/s etwa 250 MB.",
  ],
  progress: ["Progress of the test", "Fortschritt der Messung"],
  language: ["Language", "Sprache"],
  measuringIdle: ["Round trips without load …", "Umlaufzeiten ohne Last …"],
  measuringDownload: ["Download …", "Download …"],
  measuringUpload: ["Upload …", "Upload …"],
  judging: ["The server names the limit …", "Der Server bestimmt die Grenze …"],
  done: [
    "Done. Download {download}, upload {upload}; the limit of each stands below.",
    "Fertig. Download {download}, Upload {upload}; die Grenze von beiden steht unten.",
  ],
  stopped: ["Stopped.", "Abgebrochen."],
  shown: ["A result of {date}.", "Ein Ergebnis vom {date}."],
  download: ["Download", "Download"],
  upload: ["Upload", "Upload"],
  idle: ["Round trip, idle", "Umlaufzeit ohne Last"],
  idleNote: ["median, before the load", "Median, vor der Last"],
  underLoad: ["{time} under load · {rpm} RPM", "{time} unter Last · {rpm} RPM"],
  byServer: ["{time} under load, by TCP", "{time} unter Last, laut TCP"],
  chartRate: ["rate", "Rate"],
  chartDelay: ["round trip", "Umlaufzeit"],
  limitedBy: ["{way} {rate}: limited by {limit}", "{way} {rate}: begrenzt durch {limit}"],
  notShown: ["{way} {rate}: no limit was shown", "{way} {rate}: keine Grenze war zu erkennen"],
  notJudged: [
    "{way}: not judged, because the transfer was too short, or the server has no record of it.",
    "{way}: nicht beurteilt, weil die Übertragung zu kurz war oder der Server sie nicht mehr kennt.",
  ],
  evidence: ["What the server saw", "Was der Server sah (englisch)"],
  perhaps: ["May also be", "Vielleicht auch durch"],
  lifts: ["What would lift it", "Was helfen würde"],
  who: ["Who can", "Wer das kann"],
  operator: ["The operator of this server.", "Der Betreiber dieses Servers."],
  device: ["You, at this device.", "Sie, an diesem Gerät."],
  tester: ["Whoever tested, at that device.", "Wer gemessen hat, an jenem Gerät."],
  network: [
    "Whoever runs the network between: at home you, beyond it your provider.",
    "Wer das Netz dazwischen betreibt: zu Hause Sie, danach Ihr Anbieter.",
  ],
  nobody: ["Nobody yet: first it must be known.", "Noch niemand: Erst muss sie bekannt sein."],
  figures: ["Figures for experts", "Zahlen für Fachleute"],
  charts: ["Result with charts", "Ergebnis mit Diagrammen"],
  bytes: ["data", "Daten"],
  duration: ["time", "Zeit"],
  rttTcp: ["round trip of TCP: least, last", "Umlaufzeit von TCP: kleinste, letzte"],
  rttProbes: ["round trips of requests under load: median, p90, number", "Umlaufzeiten von Anfragen unter Last: Median, p90, Anzahl"],
  retransmitted: ["retransmitted", "wiederholt gesendet"],
  window: ["congestion window", "Staufenster (congestion window)"],
  mss: ["segment size", "Segmentgröße"],
  busy: ["held by receive window, by send buffer", "gehalten vom Empfangsfenster, vom Sendepuffer"],
  confidence: ["confidence of the verdict", "Verlässlichkeit des Urteils"],
  share: ["Share it", "Weitergeben"],
  copy: ["Copy", "Kopieren"],
  copied: ["Copied.", "Kopiert."],
  link: ["Link to this result", "Link zu diesem Ergebnis"],
  kept: [
    "Whoever has the link sees rates, limits and figures, but not your address. The server keeps them for {minutes} minutes, or less if many others test. Round trips of requests stay in this window.",
    "Wer den Link hat, sieht Raten, Grenzen und Zahlen, aber nicht Ihre Adresse. Der Server bewahrt sie {minutes} Minuten auf, bei sehr vielen Messungen kürzer. Die Umlaufzeiten der Anfragen bleiben in diesem Fenster.",
  ],
  method: ["How this is measured", "Wie gemessen wird"],
  methodRate: [
    "Rates: ndt7, one TCP connection in a WebSocket for ten seconds each way. A download is what arrived here, an upload what arrived at the server, as payload. Beyond about 1 Gbit/s the browser itself may be the limit.",
    "Raten: ndt7, je Richtung zehn Sekunden lang eine TCP-Verbindung in einem WebSocket. Beim Download zählt, was hier ankam, beim Upload, was beim Server ankam, als Nutzdaten. Jenseits von etwa 1 Gbit/s kann der Browser selbst die Grenze sein.",
  ],
  methodDelay: [
    "Round trips: small requests by HTTP/1.1 to the same server, ten a second, from the request to the first byte of the answer. RPM, round trips per minute, is 60 000 ms divided by the mean of the best 95 % of them under load, without the first two seconds. draft-ietf-ippm-responsiveness asks for more: requests inside the loaded connections, times of new connections and of TLS, and as many connections as fill the path. A page can do none of that here, so this RPM is likely higher than that of a full client.",
    "Umlaufzeiten: kleine Anfragen über HTTP/1.1 an denselben Server, zehn je Sekunde, von der Anfrage bis zum ersten Byte der Antwort. RPM, Umläufe je Minute, ist 60 000 ms geteilt durch das Mittel der besten 95 % davon unter Last, ohne die ersten zwei Sekunden. draft-ietf-ippm-responsiveness verlangt mehr: Anfragen in den belasteten Verbindungen, die Zeiten neuer Verbindungen und von TLS, und so viele Verbindungen, dass der Weg voll ist. Das kann diese Seite nicht; ihre RPM sind deshalb eher höher als die eines vollständigen Programms.",
  ],
  methodVerdict: [
    "Limit: the kernel of the server counts for each connection what it waited for; the verdict rests on that alone.",
    "Grenze: Der Kernel des Servers zählt für jede Verbindung, worauf sie wartete; das Urteil beruht allein darauf.",
  ],
  methodData: [
    "No cookies, nothing is stored in this browser, and nothing is requested from anywhere but this server.",
    "Keine Cookies, nichts wird in diesem Browser gespeichert, und nichts wird anderswo angefragt als bei diesem Server.",
  ],
  methodOthers: ["At a terminal:", "Im Terminal:"],
  errorBusy: [
    "The server carries as many tests as it may: try again in {seconds} seconds.",
    "Der Server misst schon so oft, wie er darf: Versuchen Sie es in {seconds} Sekunden noch einmal.",
  ],
  errorLimit: [
    "The server permits no more tests from your network now: try again later.",
    "Der Server erlaubt Ihrem Netz jetzt keine weitere Messung: Versuchen Sie es später noch einmal.",
  ],
  errorGone: [
    "The server does not answer: check the connection of this device, then press the button again.",
    "Der Server antwortet nicht: Prüfen Sie die Verbindung dieses Geräts und drücken Sie dann den Knopf noch einmal.",
  ],
  errorSocket: [
    "The WebSocket was refused, though the server answers: its operator may permit no test of ten seconds, or a proxy or an extension is in the way; try without those, or from another network.",
    "Der WebSocket wurde abgelehnt, obwohl der Server antwortet: Vielleicht erlaubt der Betreiber keine zehn Sekunden, oder ein Proxy oder eine Erweiterung stört; versuchen Sie es ohne diese, oder aus einem anderen Netz.",
  ],
  errorBroken: [
    "The connection broke during the test: press the button again; if it happens again, the network cuts long transfers.",
    "Die Verbindung brach während der Messung ab: Drücken Sie den Knopf noch einmal; geschieht es wieder, trennt das Netz lange Übertragungen.",
  ],
  errorResult: [
    "There is no such result, or it is not kept any more: press Start for a new one.",
    "Dieses Ergebnis gibt es nicht, oder es wird nicht mehr aufbewahrt: Drücken Sie Start für ein neues.",
  ],
};

// What limits a transfer, and what lifts that, by the kind of the verdict.
export const LIMITS = {
  "receive-window": {
    limit: ["the receive window", "das Empfangsfenster"],
    lifts: [
      "A larger receive buffer at the end that receives, so that more data may be under way.",
      "Ein größerer Empfangspuffer beim Empfänger, damit mehr Daten unterwegs sein dürfen.",
    ],
  },
  "receiver-application": {
    limit: ["the program that receives", "das Programm, das empfängt"],
    lifts: [
      "A program that takes data faster: at a device, close other tabs and programs, or try another browser.",
      "Ein Programm, das Daten rascher abnimmt: am Gerät andere Tabs und Programme schließen oder einen anderen Browser versuchen.",
    ],
  },
  "send-buffer": {
    limit: ["the send buffer", "den Sendepuffer"],
    lifts: [
      "A larger send buffer at the end that sends, so that more data may be under way.",
      "Ein größerer Sendepuffer beim Sender, damit mehr Daten unterwegs sein dürfen.",
    ],
  },
  "sender-application": {
    limit: ["the program that sends", "das Programm, das sendet"],
    lifts: [
      "A program that hands over data faster: at a device, close other tabs and programs, or try another browser.",
      "Ein Programm, das Daten rascher übergibt: am Gerät andere Tabs und Programme schließen oder einen anderen Browser versuchen.",
    ],
  },
  "application-window": {
    limit: ["the program's own window", "ein Fenster des Programms selbst"],
    lifts: ["A larger window of the program above TCP.", "Ein größeres Fenster des Programms über TCP."],
  },
  "congestion-window": {
    limit: ["the congestion window", "das Staufenster von TCP"],
    lifts: [
      "More time for the transfer to grow, or a congestion control that grows faster.",
      "Mehr Zeit zum Wachsen für die Übertragung, oder eine Staukontrolle, die schneller wächst.",
    ],
  },
  capacity: {
    limit: ["the capacity of the path", "die Kapazität des Wegs"],
    lifts: [
      "A faster link where it is narrowest, or fewer others on it: at home often the Wi-Fi, else the line you rent.",
      "Eine schnellere Leitung an der engsten Stelle, oder weniger andere darauf: zu Hause oft das WLAN, sonst der Anschluss.",
    ],
  },
  loss: {
    limit: ["lost packets", "verlorene Pakete"],
    lifts: [
      "A path that loses less: a cable in place of Wi-Fi, or a longer queue where packets are dropped.",
      "Ein Weg, der weniger verliert: Kabel statt WLAN, oder eine längere Warteschlange dort, wo Pakete verworfen werden.",
    ],
  },
  pacing: {
    limit: ["the pace of the sender", "den Takt des Senders"],
    lifts: ["A higher pace, or none, at the end that sends.", "Ein höherer Takt, oder keiner, beim Sender."],
  },
  cpu: {
    limit: ["a full processor", "einen vollen Prozessor"],
    lifts: [
      "A faster processor at that end, or less other work on it.",
      "Ein schnellerer Prozessor an diesem Ende, oder weniger andere Arbeit darauf.",
    ],
  },
  mtu: {
    limit: ["the size of the packets", "die Größe der Pakete"],
    lifts: ["A path that carries full packets.", "Ein Weg, der Pakete voller Größe trägt."],
  },
  unknown: {
    limit: ["nothing that was shown", "nichts Erkennbares"],
    lifts: [
      "A longer test from a client that sees both ends, as the one below, may show it.",
      "Eine längere Messung mit einem Programm, das beide Enden sieht, wie dem unten, kann sie zeigen.",
    ],
  },
};
