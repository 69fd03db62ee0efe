// The search runs in a worker, which browsers refuse in pages that are opened from disk.
// There it runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.frame = frame.contentWindow
      this.frame.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.loaded = new Promise(resolve => {
        const script = this.frame.document.createElement("script")
        script.src = url
        script.onload = resolve
        this.frame.document.body.append(script)
      })
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
