/* The search without a server: a page that is opened from a disk may not start a worker, so that a hidden frame takes its part. */
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.frame = frame;
      const inner = frame.contentWindow;
      inner.IFrameWorker = true;
      inner.document.open();
      inner.document.write("<!doctype html><title>search</title>");
      inner.document.close();
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inner.importScripts = (...urls) =>
        urls.reduce((before, one) => before.then(() => new Promise((done) => {
          const script = inner.document.createElement("script");
          script.src = one;
          script.onload = done;
          inner.document.body.append(script);
        })), Promise.resolve());
      const script = inner.document.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = () => {
        const sent = this.waiting;
        this.waiting = null;
        sent.forEach((data) => this.postMessage(data));
      };
      inner.document.body.append(script);
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
