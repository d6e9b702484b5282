/* Browsers do not start workers for pages that are opened as files. There the search runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.url = new URL(url, location.href).href
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = `<!doctype html><script>
        self.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
          const script = document.createElement("script")
          script.src = new URL(url, ${JSON.stringify(this.url)}).href
          script.onload = done
          script.onerror = failed
          document.body.appendChild(script)
        })), Promise.resolve())
        self.postMessage = message => parent.dispatchEvent(new MessageEvent("frame-message", { data: message }))
      <\/script><body><script src="${this.url}"><\/script>`
      window.addEventListener("frame-message", event => {
        const message = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(message)
        if (this.onmessage) this.onmessage(message)
      })
      this.frame.onload = () => {
        const waiting = this.waiting
        this.waiting = null
        for (const message of waiting) this.postMessage(message)
      }
      document.body.appendChild(this.frame)
    }

    postMessage(message) {
      if (this.waiting) this.waiting.push(message)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: message }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
