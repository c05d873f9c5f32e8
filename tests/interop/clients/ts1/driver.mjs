import { createRequire } from 'node:module';
import { join } from 'node:path';

import { drive } from '../typescript.mjs';

// The SDK is where the driver is started, not beside it.
const require = createRequire(join(process.cwd(), 'package.json'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { LoggingMessageNotificationSchema } = require('@modelcontextprotocol/sdk/types.js');

await drive({
  Client,
  Transport: StreamableHTTPClientTransport,
  call: (client, params, options) => client.callTool(params, undefined, options),
  onLog: (client, handler) => client.setNotificationHandler(LoggingMessageNotificationSchema, handler),
});
