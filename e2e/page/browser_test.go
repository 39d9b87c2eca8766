package page

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	cdbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/fairpact/fairpact/e2e"
)

// chromium starts the browser that all tests share. TestMain closes it.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("hack/install-missing.sh chromium installs it: %w", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-dev-shm-usage", true))
	ctx, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ = chromedp.NewContext(ctx)
	started = ctx
	return ctx, chromedp.Do(ctx)
})

var started context.Context

func TestMain(m *testing.M) {
	code := e2e.Main(m)
	if started != nil {
		if err := chromedp.Cancel(started); err != nil {
			fmt.Fprintln(os.Stderr, "closing the browser:", err)
		}
	}
	os.Exit(code)
}

// tab is a page in a browser session. Each session has its own storage. The test fails if the page
// sends a request to another origin, writes a warning or an error to the console, or throws an
// exception.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string

	bears string // the test allows browser errors and warnings that contain this text; if empty, it allows none

	mu    sync.Mutex
	asked int // number of requests to the origin
}

func browser(t *testing.T) (*e2e.Client, *tab) {
	t.Helper()
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	return c, newTab(t, c.Base)
}

func newTab(t *testing.T, origin string) *tab {
	t.Helper()
	ctx, err := chromium()
	e2e.Must(t, err)
	ctx, stop := chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	p := &tab{t: t, ctx: ctx, origin: origin}
	t.Cleanup(func() {
		stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.asked == 0 {
			t.Error("no request of the browser was seen, so the check of foreign requests proves nothing")
		}
	})
	p.listen()
	return p
}

func (p *tab) listen() {
	p.t.Helper()
	e2e.Must(p.t, chromedp.Listen(p.ctx, p.watch))
	if _, err := chromedp.Call(p.ctx, network.Enable, network.EnableParams{}); err != nil {
		p.t.Fatal(err)
	}
	if _, err := chromedp.Call(p.ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		p.t.Fatal(err)
	}
}

// beside opens another tab, which shares its storage with p.
func (p *tab) beside() *tab {
	p.t.Helper()
	ctx, stop := chromedp.NewContext(p.ctx)
	p.t.Cleanup(stop)
	other := &tab{t: p.t, ctx: ctx, origin: p.origin}
	other.listen()
	return other
}

func (p *tab) watch(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		to, err := url.Parse(e.Request.URL)
		switch {
		case err == nil && to.Scheme+"://"+to.Host == p.origin:
			p.mu.Lock()
			p.asked++
			p.mu.Unlock()
		case err != nil || to.Scheme != "data" && to.Scheme != "blob" && to.Scheme != "about":
			p.t.Errorf("the page sent a request to another origin: %s", e.Request.URL)
		}
	case *runtime.EventExceptionThrown:
		p.t.Errorf("the page threw %s", e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			p.t.Errorf("the page wrote to its console: %v", e.Args)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			if p.bears == "" || !strings.Contains(e.Entry.Text, p.bears) {
				p.t.Errorf("the browser logged %s %s", e.Entry.Text, e.Entry.URL)
			}
		}
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	e2e.Must(p.t, chromedp.Do(p.ctx, steps...))
}

func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("evaluate %.300s: %v", expression, err)
	}
	return value
}

func (p *tab) open(path string, width int64, scheme string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1, Mobile: width < 600}); err != nil {
		p.t.Fatal(err)
	}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
		p.t.Fatal(err)
	}
	p.do(chromedp.Navigate(p.origin + path))
}

func (p *tab) set(field, value string) {
	p.t.Helper()
	eval[bool](p, "document.querySelector('"+field+"').value = "+e2e.JsonText(p.t, value)+", true")
}

func (p *tab) click(selector string) {
	p.t.Helper()
	eval[bool](p, "document.querySelector('"+selector+"').click(), true")
}

// hand puts a file with the given text into a file field, as if a person had chosen the file.
func (p *tab) hand(field, text string) {
	p.t.Helper()
	eval[bool](p, `(() => {
		const files = new DataTransfer();
		files.items.add(new File([`+e2e.JsonText(p.t, text)+`], 'submitted.json'));
		const field = document.querySelector('`+field+`');
		field.files = files.files;
		field.dispatchEvent(new Event('change'));
		return true;
	})()`)
}

func (p *tab) download(button string) (path string) {
	p.t.Helper()
	dir := p.t.TempDir()
	if _, err := chromedp.Call(p.ctx, cdbrowser.SetDownloadBehavior, cdbrowser.SetDownloadBehaviorParams{Behavior: cdbrowser.SetDownloadBehaviorBehaviorAllow, BrowserContextID: chromedp.FromContext(p.ctx).BrowserContextID, DownloadPath: dir}); err != nil {
		p.t.Fatal(err)
	}
	p.until("the page offers "+button, "document.querySelector('"+button+"')")
	eval[bool](p, "document.querySelector('"+button+"').focus(), true")
	p.do(chromedp.KeyEvent("\r"))
	e2e.Eventually(p.t, button+" saves a file", e2e.DefaultTimeout, func() bool {
		saved, err := filepath.Glob(dir + "/*.json")
		if len(saved) == 1 {
			path = saved[0]
		}
		return err == nil && path != ""
	})
	return path
}

func (p *tab) until(what, condition string) {
	p.t.Helper()
	e2e.Eventually(p.t, what, e2e.DefaultTimeout, func() bool {
		holds, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")", chromedp.EvalAwaitPromise))
		if err != nil && !strings.Contains(err.Error(), "navigated") { // the page changes to another one meanwhile
			p.t.Fatalf("evaluate %.300s: %v", condition, err)
		}
		return err == nil && holds
	})
}

func (p *tab) tabTo(selector string) {
	p.t.Helper()
	for range 60 {
		if eval[bool](p, "document.activeElement?.matches("+e2e.JsonText(p.t, selector)+") ?? false") {
			return
		}
		p.do(chromedp.KeyEvent("\t"))
	}
	p.t.Fatalf("the Tab key does not reach %s", selector)
}

func (p *tab) enter(selector, keys string) {
	p.t.Helper()
	p.tabTo(selector)
	p.do(chromedp.KeyEvent(keys))
}

var axe = sync.OnceValues(func() ([]byte, error) { return os.ReadFile(e2e.Repo("e2e/testdata/axe-core/axe.min.js")) })

// shot saves a picture of the page in the directory that FAIRPACT_SHOTS names, if any.
func (p *tab) shot(name string) {
	p.t.Helper()
	if dir := os.Getenv("FAIRPACT_SHOTS"); dir != "" {
		shot, err := chromedp.Call(p.ctx, cdpage.CaptureScreenshot, cdpage.CaptureScreenshotParams{CaptureBeyondViewport: new(true)})
		e2e.Must(p.t, err)
		e2e.Must(p.t, os.WriteFile(filepath.Join(dir, name+".png"), shot.Data, 0o600))
	}
}

// accessible fails the test if the current page violates WCAG level A or AA, or needs horizontal
// scrolling.
func (p *tab) accessible(name string) {
	p.t.Helper()
	p.shot(name)
	script, err := axe()
	e2e.Must(p.t, err)
	if !eval[bool](p, "Boolean(globalThis.axe)") {
		eval[bool](p, string(script)+"; true")
	}
	found := eval[[]string](p, `axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations']}).then((report) => {
		if (report.passes.length < 10) throw new Error('axe has checked fewer than ten rules');
		return report.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.target + ' ' + n.failureSummary));
	})`)
	for _, violation := range found {
		p.t.Errorf("%s: %s", name, violation)
	}
	if over := eval[int](p, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
		p.t.Errorf("%s: the page is %d px wider than the window", name, over)
	}
}

func (p *tab) text(selector string) string {
	p.t.Helper()
	return strings.TrimSpace(eval[string](p, "document.querySelector('"+selector+"')?.textContent ?? ''"))
}

// claims returns the statuses of the claims that a report shows.
func (p *tab) claims(report string) map[string]string {
	p.t.Helper()
	return eval[map[string]string](p, "Object.fromEntries([...document.querySelectorAll('"+report+" [data-claim]')].map(({dataset}) => [dataset.claim, dataset.status]))")
}
